# SPDX-License-Identifier: Apache-2.0
"""NoisyCounts: noise on every cell, negative counts to none. The baseline of the papers.

``docs/proofs/noisy-counts.md`` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import PlainValidator

from dunnage.certificate import CountNoise
from dunnage.counting.laplace import CountLaw, FlooredLaplace, RoundedLaplace, exceeding_cells, surplus
from dunnage.errors import ParameterError
from dunnage.exact import plain, shown
from dunnage.kinds.common import require, same
from dunnage.mechanisms.base import Flag, Foresight, Progress
from dunnage.mechanisms.counting import Counted, true_counts
from dunnage.mechanisms.tabulated import (
    AS_PUBLISHED,
    MOST_DENSE_CELLS,
    Asked,
    CountFigures,
    CountForm,
    CountsMechanism,
    DrawnCounts,
    even_shares,
    noise_scale,
    sensitivity,
)
from dunnage.noise import Noise
from dunnage.schema import Schema

if TYPE_CHECKING:
    from dunnage.release import Release
    from dunnage.tables.dataset import Dataset

_LAWS: Mapping[str, Callable[[Fraction], CountLaw]] = {"round": RoundedLaplace, "floor": FlooredLaplace}
_ROUNDED: Mapping[str, Callable[[Any], Any]] = {"round": np.rint, "floor": np.floor}
MOST_CREATED = 50_000_000
MOST_THRESHOLD = 1_000_000_000_000


def _threshold(given: Any) -> int:
    whole = isinstance(given, int) and not isinstance(given, bool)
    if not whole or not 1 <= given <= MOST_THRESHOLD:
        raise ParameterError(
            f"threshold must be a whole number from 1 to {MOST_THRESHOLD:,}. Got {shown(given)}. 1 is none."
        )
    return int(given)


class NoisyCounts(CountsMechanism):
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

    name = "noisy-counts"
    proof = ("noisy-counts.md#the-laws",)
    rounding: Literal["round", "floor"] = "round"
    threshold: Annotated[int, PlainValidator(_threshold)] = 1
    as_published: Flag = False

    @property
    def form(self) -> CountForm:
        return AS_PUBLISHED if self.as_published else CountForm(_LAWS[self.rounding])

    def prepare(self, dataset: Dataset, progress: Progress | None = None) -> CountLaw:
        law, size = self.law(dataset), dataset.schema.universe(dataset.period).num_cells
        if size <= MOST_DENSE_CELLS:
            return law
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
        return law

    def law(self, dataset: Dataset) -> CountLaw:
        """Return the law of the noise."""
        scale = self._scale(dataset)
        return self.form.law(scale)

    def check_noise(self, release: Release, schema: Schema, change: int) -> set[str]:
        """Check noise that was added to every count by itself, and that no count is below the threshold."""
        stated = release.certificate.counts.noise
        due = {"scale": plain(change / self.epsilon), "law": self.form.law(Fraction(1)).name}
        follows = stated is not None and same(due, stated.plain())
        require(follows, "certificate.json: the noise does not follow from epsilon")
        counts = release.data.column("count").to_numpy()
        require(bool((counts >= self.threshold).all()), "data: a count is below the threshold")
        return {"noise"}

    def _scale(self, dataset: Dataset) -> Fraction:
        return noise_scale(self.epsilon, self._change(dataset))

    def _change(self, dataset: Dataset) -> int:
        return sensitivity(dataset.schema, dataset.period)

    def draw_counts(self, counted: Counted, prepared: CountLaw, noise: Noise) -> DrawnCounts:
        law, size = prepared, counted.universe.num_cells
        figures: CountFigures = {"noise": CountNoise(scale=plain(law.scale), law=law.name)}
        if size > MOST_DENSE_CELLS:
            noisy = counted.counts + law.draw(noise, len(counted.cells))
            kept = noisy >= self.threshold
            cells, counts = exceeding_cells(noise, law, size, self.threshold, taken=counted.cells)
            cells, counts = np.append(counted.cells[kept], cells), np.append(noisy[kept], counts)
            order = np.argsort(cells)
            return DrawnCounts(cells=cells[order], counts=counts[order], figures=figures)
        dense = law.draw(noise, size)
        dense[counted.cells] += counted.counts
        whole = _ROUNDED[self.rounding](dense).astype(np.int64)
        found = np.flatnonzero(whole >= self.threshold)
        return DrawnCounts(cells=found, counts=whole[found], figures=figures)

    def preview(self, dataset: Dataset) -> Foresight:
        scale, counted = self._scale(dataset), true_counts(dataset)
        law, size = _LAWS[self.rounding](scale), counted.universe.num_cells
        created = surplus(law, self.threshold) * (size - len(counted.cells))
        asked = Asked.of(counted.universe, even_shares([]), self.epsilon, self._change(dataset), _LAWS[self.rounding])
        line = (
            f"noise alone will create about {created:,.0f} trips in cells that have none: sums are larger by that much"
        )
        return asked.foresee(counted, line)
