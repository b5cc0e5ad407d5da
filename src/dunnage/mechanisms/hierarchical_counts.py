# SPDX-License-Identifier: Apache-2.0
"""HierarchicalCounts: a tree of noisy counts made consistent in closed form. The baseline of Hay et al.

``docs/proofs/constrained-counts.md`` has the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dunnage.counting.laplace import DiscreteLaplace, FloatingLaplace, surplus
from dunnage.counting.tables import consistent_tree
from dunnage.dataset import Dataset
from dunnage.errors import ParameterError
from dunnage.exact import Exact, plain
from dunnage.guarantees import Promise
from dunnage.ledger import Ledger
from dunnage.mechanisms.counting import Counted, true_counts
from dunnage.mechanisms.features import Layout, described, kept_features
from dunnage.mechanisms.foresight import Foresight
from dunnage.mechanisms.perturb import epsilon_of
from dunnage.mechanisms.recode import check_choice
from dunnage.mechanisms.tabulated import (
    FLOATING,
    Asked,
    Drawn,
    Query,
    check_flag,
    check_trips,
    counts_promise,
    drawn_at,
    even_shares,
    features_of,
    foresee_counts,
    growing_shares,
    release_counts,
    sensitivity,
)
from dunnage.noise import Noise
from dunnage.publication import Publication
from dunnage.schema import Schema
from dunnage.trips import is_nested

BUDGETS = ("geometric", "uniform")
MOST_CELLS = 50_000_000


@dataclass(frozen=True, kw_only=True)
class HierarchicalCounts:
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

    name: ClassVar[str] = "hierarchical-counts"
    counts_persons: ClassVar[bool] = True
    counts_trips: ClassVar[bool] = True
    epsilon: Fraction
    features: Any = "H5"
    budget: str = "geometric"
    prune: bool = True
    as_published: bool = False

    if TYPE_CHECKING:  # what may be passed is wider than what is kept

        def __init__(
            self,
            *,
            epsilon: Exact,
            features: Any = "H5",
            budget: str = "geometric",
            prune: bool = True,
            as_published: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", epsilon_of(self.epsilon))
        object.__setattr__(self, "features", kept_features(self.features))
        check_choice("budget", self.budget, BUDGETS)
        check_flag("prune", self.prune)
        check_flag("as_published", self.as_published)

    def promise(self, schema: Schema) -> Promise:
        """State what a release under this schema will guarantee; needs no data."""
        check_trips(schema, self.name)
        self.queries(schema)
        why = FLOATING if self.as_published else ""
        return counts_promise(self.epsilon, schema, mechanism=self.describe(), published=why)

    def queries(self, schema: Schema) -> tuple[Query, ...]:
        """Return what is asked, and at which share of epsilon."""
        columns = features_of(self.features, schema)
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
        law = FloatingLaplace if self.as_published else DiscreteLaplace
        universe = dataset.schema.universe(dataset.period)
        change = sensitivity(dataset.schema, dataset.period)
        asked = Asked.of(universe, self.queries(dataset.schema), self.epsilon, change, law)
        if universe.num_cells > MOST_CELLS:
            raise ParameterError(
                f"{self.name} draws noise for every cell, at most {MOST_CELLS:,}. Got {universe.num_cells:,}. "
                "Use constrained-counts, or longer windows."
            )
        return asked

    def release(self, dataset: Dataset, *, ledger: Ledger, noise: Noise) -> Publication:
        """Spend, then release counts of a consistent tree.

        Raises
        ------
        BudgetError
            If the ledger refuses; nothing is drawn then.
        """
        promise, asked = self.promise(dataset.schema), self.asked(dataset)
        return release_counts(
            promise, lambda counted, source: self._draw(counted, asked, source), dataset, ledger=ledger, noise=noise
        )

    def _draw(self, counted: Counted, asked: Asked, noise: Noise) -> Drawn:
        layout = Layout.of(asked.universe, asked.features)
        noisy = [*asked.noisy_sums(counted, noise), asked.noisy_cells(counted, layout, noise)]
        parents = [finer.parents(coarser, layout) for coarser, finer in pairwise(asked.features)]
        parents.append(np.repeat(layout.groups_of(asked.features[-1]), layout.sizes))
        variances = [law.spread**2 for law in (*asked.laws[1:], asked.laws[0])]
        leaves = consistent_tree(noisy, parents, variances, prune=self.prune)[-1]
        whole = np.rint(leaves).astype(np.int64)
        found = np.flatnonzero(whole > 0)
        return drawn_at(layout, found, whole[found], {"features": asked.describe()})

    def foresee(self, dataset: Dataset) -> Foresight:
        """Tell the owner how large the noise on each feature will be."""
        asked = self.asked(dataset)
        created = surplus(DiscreteLaplace(asked.laws[0].scale)) * asked.universe.num_cells
        line = (
            f"negative counts become none, which creates up to about {created:,.0f} trips (fewer where nodes are "
            "pruned): sums of the released counts are larger by far than the noise above"
        )
        return foresee_counts(asked.foreseen(true_counts(dataset)), [line])

    def describe(self) -> dict[str, Any]:
        """Give name and all parameters as plain data."""
        return {
            "name": self.name,
            "epsilon": plain(self.epsilon),
            "features": described(self.features),
            "budget": self.budget,
            "prune": self.prune,
            "as_published": self.as_published,
        }
