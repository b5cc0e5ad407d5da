# SPDX-License-Identifier: Apache-2.0
"""HierarchicalCounts: a tree of noisy counts made consistent in closed form. The baseline of Hay et al.

``docs/proofs/constrained-counts.md`` has the proofs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from dunnage.counting.laplace import DiscreteLaplace, surplus
from dunnage.counting.tables import consistent_tree
from dunnage.errors import ParameterError
from dunnage.mechanisms.base import Flag, Foresight
from dunnage.mechanisms.counting import Counted, true_counts
from dunnage.mechanisms.features import Layout, read_features
from dunnage.mechanisms.tabulated import (
    Asked,
    DrawnCounts,
    FeatureMechanism,
    Features,
    Query,
    even_shares,
    growing_shares,
)
from dunnage.noise import Noise
from dunnage.schema import Schema
from dunnage.trips import is_nested

if TYPE_CHECKING:
    from dunnage.tables.dataset import Dataset

MOST_CELLS = 50_000_000


class HierarchicalCounts(FeatureMechanism):
    """Ask every node of a tree of features with noise, and make all counts consistent by least squares.

    Parameters
    ----------
    epsilon
        What is kept about one trip, or one rider, as the policy says; the levels share it.
    features
        ``H3``, ``H4``, ``H5``, or a list of lists of columns of which each refines the one before; the cells are
        always the last level.
    budget
        ``geometric`` (each level the third root of 2 times what the level above has) or ``uniform``.
    prune
        Whether a node whose estimate is not positive is made zero with all below it.
    as_published
        Draw in floating point as the paper does; nothing is proved of that.

    Guarantee
    ---------
    Epsilon-differential privacy between datasets of which one has a trip (or rider) more, proved.

    Assumptions
    -----------
    Public stops, windows, zones and modes.

    Runtime
    -------
    O(cells); at most 50 million.

    Utility
    -------
    Least variance of all unbiased linear estimates, which does not help much: negative counts become none, and most
    cells are empty.

    References
    ----------
    Hay, Rastogi, Miklau, Suciu 2010; Cormode, Procopiuc, Srivastava, Shen, Yu 2012 (geometric budget); Fioretto, Lee,
    Van Hentenryck 2018, sections 5 and 10.

    Examples
    --------
    >>> HierarchicalCounts(epsilon=1).describe()["features"]
    'H5'
    """

    name = "hierarchical-counts"
    proof = ("constrained-counts.md#privacy", "constrained-counts.md#the-tree")
    fewest_features = "H3"
    features: Features = "H5"
    budget: Literal["geometric", "uniform"] = "geometric"
    prune: Flag = True
    as_published: Flag = False

    def queries(self, schema: Schema) -> tuple[Query, ...]:
        columns = read_features(self.features, days=schema.tells_days)
        if not columns or not is_nested(columns):
            raise ParameterError(
                f"{self.name} needs features of which each refines the one before. Got some that do not. Use H5, or "
                "constrained-counts, which takes any."
            )
        return growing_shares(columns) if self.budget == "geometric" else even_shares(columns)

    def asked(self, dataset: Dataset) -> Asked:
        """Return the levels of the tree, with their noise.

        Raises
        ------
        ParameterError
            If there are too many cells.
        """
        asked = self.ask(dataset)
        universe = asked.universe
        if universe.num_cells > MOST_CELLS:
            raise ParameterError(
                f"{self.name} draws noise for every cell, at most {MOST_CELLS:,}. Got {universe.num_cells:,}. "
                "Use constrained-counts, or longer windows."
            )
        return asked

    def draw_counts(self, counted: Counted, prepared: Asked, noise: Noise) -> DrawnCounts:
        asked = prepared
        layout = Layout.of(asked.universe, asked.features)
        noisy = [*asked.noisy_sums(counted, noise), asked.noisy_cells(counted, layout, noise)]
        parents = [finer.parents(coarser, layout) for coarser, finer in pairwise(asked.features)]
        parents.append(np.repeat(layout.groups_of(asked.features[-1]), layout.sizes))
        variances = [law.spread**2 for law in (*asked.laws[1:], asked.laws[0])]
        leaves = consistent_tree(noisy, parents, variances, prune=self.prune)[-1]
        whole = np.rint(leaves).astype(np.int64)
        found = np.flatnonzero(whole > 0)
        return DrawnCounts.at(layout, found, whole[found], {"features": asked.describe()})

    def preview(self, dataset: Dataset) -> Foresight:
        asked = self.asked(dataset)
        created = surplus(DiscreteLaplace(asked.laws[0].scale)) * asked.universe.num_cells
        line = (
            f"negative counts become none, which creates up to about {created:,.0f} trips (fewer where nodes are "
            "pruned): sums of the released counts are larger by far than the noise above"
        )
        return asked.foresee(true_counts(dataset), line)
