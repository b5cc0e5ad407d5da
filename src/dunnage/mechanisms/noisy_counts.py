# SPDX-License-Identifier: Apache-2.0
"""NoisyCounts: noise on every cell, negative counts to none. The baseline of the papers.

``docs/proofs/noisy-counts.md`` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dunnage.counting.laplace import CountLaw, FloatingLaplace, FlooredLaplace, RoundedLaplace, exceeding_cells, surplus
from dunnage.dataset import Dataset
from dunnage.errors import ParameterError
from dunnage.exact import Exact, plain, shown
from dunnage.guarantees import Promise
from dunnage.ledger import Ledger
from dunnage.mechanisms.counting import Counted, true_counts
from dunnage.mechanisms.foresight import Foresight
from dunnage.mechanisms.perturb import epsilon_of
from dunnage.mechanisms.recode import check_choice
from dunnage.mechanisms.tabulated import (
    FLOATING,
    MOST_DENSE_CELLS,
    Asked,
    Drawn,
    check_flag,
    check_trips,
    counts_promise,
    even_shares,
    foresee_counts,
    noise_scale,
    release_counts,
    sensitivity,
)
from dunnage.noise import Noise
from dunnage.publication import Publication
from dunnage.schema import Schema

_LAWS: Mapping[str, Callable[[Fraction], CountLaw]] = {"round": RoundedLaplace, "floor": FlooredLaplace}
_ROUNDED: Mapping[str, Callable[[Any], Any]] = {"round": np.rint, "floor": np.floor}
MOST_CREATED = 50_000_000
MOST_THRESHOLD = 1_000_000_000_000


@dataclass(frozen=True, kw_only=True)
class NoisyCounts:
    """Add Laplace noise to the count of every trip type, occurring or not, and keep those that reach a threshold.

    Parameters
    ----------
    epsilon
        What is kept about one trip, or one rider, as the policy says.
    rounding
        ``round`` or ``floor``: which whole number a Laplace number becomes; drawn exactly, without ever making it.
    threshold
        Fewest noisy trips that are published; chosen without looking at the data.
    as_published
        Draw in floating point as the paper does, and round afterwards; nothing is proved of that.

    Guarantee
    ---------
    Epsilon-differential privacy between datasets of which one has a trip (or rider) more, proved.

    Assumptions
    -----------
    Public stops and windows.

    Runtime
    -------
    O(cells); with a threshold O(trips + cells that reach it), however many cells there are.

    Utility
    -------
    Cells that occur are off by the scale of the noise. Since most cells are empty and negative counts become none, the
    total is too large by ``cells x scale / 2``: seven times the trips, at epsilon 1 on the data of the paper.

    References
    ----------
    Dwork, McSherry, Nissim, Smith 2006; Fioretto, Lee, Van Hentenryck 2018, section 6; Cormode, Procopiuc, Srivastava,
    Tran 2012 (noise of empty cells only where it counts).

    Examples
    --------
    >>> NoisyCounts(epsilon=1).describe()["rounding"]
    'round'
    """

    name: ClassVar[str] = "noisy-counts"
    counts_persons: ClassVar[bool] = True
    counts_trips: ClassVar[bool] = True
    epsilon: Fraction
    rounding: str = "round"
    threshold: int = 1
    as_published: bool = False

    if TYPE_CHECKING:  # what may be passed is wider than what is kept

        def __init__(
            self, *, epsilon: Exact, rounding: str = "round", threshold: int = 1, as_published: bool = False
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", epsilon_of(self.epsilon))
        check_choice("rounding", self.rounding, tuple(_LAWS))
        check_flag("as_published", self.as_published)
        whole = isinstance(self.threshold, int) and not isinstance(self.threshold, bool)
        if not whole or not 1 <= self.threshold <= MOST_THRESHOLD:
            raise ParameterError(
                f"threshold must be a whole number from 1 to {MOST_THRESHOLD:,}. Got {shown(self.threshold)}. 1 is "
                "none."
            )

    def promise(self, schema: Schema) -> Promise:
        """State what a release under this schema will guarantee; needs no data."""
        check_trips(schema, self.name)
        why = FLOATING if self.as_published else ""
        return counts_promise(self.epsilon, schema, mechanism=self.describe(), published=why)

    def release(self, dataset: Dataset, *, ledger: Ledger, noise: Noise) -> Publication:
        """Spend, then release noisy counts.

        Raises
        ------
        BudgetError
            If the ledger refuses; nothing is drawn then.
        """
        promise = self.promise(dataset.schema)
        law = self.law(dataset)
        self._check_size(dataset, law)
        return release_counts(
            promise, lambda counted, source: self._draw(counted, law, source), dataset, ledger=ledger, noise=noise
        )

    def law(self, dataset: Dataset) -> CountLaw:
        """Return the law of the noise."""
        scale = self._scale(dataset)
        return FloatingLaplace(scale) if self.as_published else _LAWS[self.rounding](scale)

    def _scale(self, dataset: Dataset) -> Fraction:
        return noise_scale(self.epsilon, self._change(dataset))

    def _change(self, dataset: Dataset) -> int:
        return sensitivity(dataset.schema, dataset.period)

    def _check_size(self, dataset: Dataset, law: CountLaw) -> None:
        """Refuse, before anything is spent, what no machine could hold."""
        size = dataset.schema.universe(dataset.period).num_cells
        if size <= MOST_DENSE_CELLS:
            return
        if self.as_published:
            raise ParameterError(
                f"as_published draws noise for every cell. Got {size:,} cells, at most {MOST_DENSE_CELLS:,} are drawn. "
                "Leave it out."
            )
        created = size * law.above(self.threshold)
        if created > MOST_CREATED:
            enough = self.threshold + math.ceil(float(law.scale) * math.log(created / MOST_CREATED))
            raise ParameterError(
                f"noise alone would reach the threshold of {self.threshold} in about {created:,.0f} of {size:,} cells. "
                f"Set threshold = {enough} or more, or use constrained-counts."
            )

    def _draw(self, counted: Counted, law: CountLaw, noise: Noise) -> Drawn:
        size = counted.universe.num_cells
        measures = {"noise": {"scale": plain(law.scale), "law": law.name}}
        if size > MOST_DENSE_CELLS:
            noisy = counted.counts + law.draw(noise, len(counted.cells))
            kept = noisy >= self.threshold
            cells, counts = exceeding_cells(noise, law, size, self.threshold, taken=counted.cells)
            cells, counts = np.append(counted.cells[kept], cells), np.append(noisy[kept], counts)
            order = np.argsort(cells)
            return Drawn(cells=cells[order], counts=counts[order], measures=measures)
        dense = law.draw(noise, size)
        dense[counted.cells] += counted.counts
        whole = _ROUNDED[self.rounding](dense).astype(np.int64)
        found = np.flatnonzero(whole >= self.threshold)
        return Drawn(cells=found, counts=whole[found], measures=measures)

    def foresee(self, dataset: Dataset) -> Foresight:
        """Tell the owner how far off counts will be, and how many trips noise alone will create."""
        scale, counted = self._scale(dataset), true_counts(dataset)
        law, size = _LAWS[self.rounding](scale), counted.universe.num_cells
        created = surplus(law, self.threshold) * (size - len(counted.cells))
        asked = Asked.of(counted.universe, even_shares([]), self.epsilon, self._change(dataset), _LAWS[self.rounding])
        line = (
            f"noise alone will create about {created:,.0f} trips in cells that have none: sums are larger by that much"
        )
        return foresee_counts(asked.foreseen(counted), [line])

    def describe(self) -> dict[str, Any]:
        """Give name and all parameters as plain data."""
        return {
            "name": self.name,
            "epsilon": plain(self.epsilon),
            "rounding": self.rounding,
            "threshold": self.threshold,
            "as_published": self.as_published,
        }
