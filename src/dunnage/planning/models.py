# SPDX-License-Identifier: Apache-2.0
"""The packing models: what each uses of the knowledge about a weight, and what it promises in return.

They are frozen parameters; :func:`dunnage.pack` does the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from pydantic import Field

from dunnage.arrays import FloatArray
from dunnage.errors import ParameterError
from dunnage.exact import Exact, exact, plain, share, shown, shown_number
from dunnage.model import documents
from dunnage.model.documents import Amount
from dunnage.release import Uncertain

STATISTICS = ("upper", "mean")
BUDGETS = ("largest", "items", "published")
DEFAULT_RISK = Fraction(1, 20)
DEFAULT_SCENARIOS = 100
_MAX_PRIOR = Fraction(10**12)


class PackingModel(documents.Model):
    """What a plan says about its model: name, parameters and outcome."""

    name: str
    statistic: str | None = None
    budget: str | None = None
    risk: Amount | None = None
    prior: str | None = None
    as_published: bool | None = None
    scenarios: int | None = None
    seed: int | None = None
    from_: str | None = Field(default=None, alias="from")  # what was packed, if the model leaves this open
    equals: str | None = None  # which other model gives the same plan, and why


@dataclass(frozen=True, kw_only=True)
class Standard:
    """Pack each row as if its weight were one number.

    Parameters
    ----------
    statistic
        ``upper``: the upper bound, so that the true weights always fit; ``mean``: the class mean, so that some bins may
        overflow. On noisy releases: the upper end of the interval, which may miss the truth, and the noisy value.

    References
    ----------
    Hoogervorst et al. 2019, section 3.1 (eqs. 3-6) and section 6.3.
    """

    name: ClassVar[str] = "standard"
    statistic: str = "upper"

    def __post_init__(self) -> None:
        if self.statistic not in STATISTICS:
            raise ParameterError(f"statistic must be one of {', '.join(STATISTICS)}. Got {self.statistic!r}.")

    def weights(self, known: Uncertain) -> FloatArray:
        if self.statistic == "upper":
            return known.upper
        if known.nominal is None:
            raise ParameterError(
                f"the release has no mean of {known.name}. Pack on the upper bound, or sealed. An owner who releases "
                'by partition or full-domain can add the mean: statistic = "mean" or "multiset".'
            )
        return known.nominal

    def describe(self) -> PackingModel:
        return PackingModel(name=self.name, statistic=self.statistic)


@dataclass(frozen=True, kw_only=True)
class Robust:
    """Pack so that a bin fits as long as not all of its rows are as heavy as they can be.

    Parameters
    ----------
    budget
        ``largest``: a bin with a rows of a class allows for the a largest members of that class. It always fits, and
        never needs more bins than upper bounds do. Needs multisets.
        ``items``: a bin with a rows allows for the sqrt(-2 a log(risk / n)) largest deviations from the mean.
        ``published``: as in the paper, sqrt(-2 n log(risk / n)) for every bin. No bin has that many rows, so this
        equals the upper bounds.
    risk
        Only for ``items`` and ``published``, by default 0.05: the budgets are computed from it. They assume independent
        deviations, but rows of a class are not independent. ``largest`` always fits, so it takes no risk.

    References
    ----------
    Hoogervorst et al. 2019, section 5.2 (eqs. 17-21); Ben-Tal, El Ghaoui, Nemirovski 2009 (budgeted uncertainty).
    """

    name: ClassVar[str] = "robust"
    budget: str = "largest"
    risk: Fraction | None = None

    def __post_init__(self) -> None:
        if self.budget not in BUDGETS:
            raise ParameterError(f"budget must be one of {', '.join(BUDGETS)}. Got {self.budget!r}.")
        given = None if self.risk is None else _risk(self.risk, zero_allowed=False)
        if self.budget == "largest":
            if given is not None:
                raise ParameterError(
                    "the robust model with budget largest always fits, so it takes no risk. Remove the risk, use the "
                    "stochastic model (--model stochastic) or, for one quantity and one kind of truck, budget items "
                    "(--budget items)."
                )
            return
        object.__setattr__(self, "risk", DEFAULT_RISK if given is None else given)

    def describe(self) -> PackingModel:
        if self.budget == "largest":
            return PackingModel(name=self.name, budget=self.budget)
        return PackingModel(name=self.name, budget=self.budget, risk=self.risk)


@dataclass(frozen=True, kw_only=True)
class Prior:
    """The assumed public distribution of true weights, over grid points, before the noisy weights are known."""

    # mean, deviation: of a normal law, cut off at the ends of the domain; None for the uniform law
    mean: Fraction | None = None
    deviation: Fraction | None = None

    @classmethod
    def parse(cls, text: str) -> Prior:
        """Read ``uniform`` or ``normal:MEAN:SD``."""
        parts = text.split(":") if isinstance(text, str) else []
        if parts == ["uniform"]:
            return cls()
        if len(parts) != 3 or parts[0] != "normal":
            raise ParameterError(f"prior must be uniform or normal:MEAN:SD, such as normal:250:60. Got {shown(text)}.")
        mean, deviation = exact(parts[1], what="the prior's mean"), exact(parts[2], what="the prior's deviation")
        if not 1 / _MAX_PRIOR <= deviation <= _MAX_PRIOR or abs(mean) > _MAX_PRIOR:
            raise ParameterError(
                f"the prior's deviation must be more than 0, and neither number may be extreme. Got {shown(text)}."
            )
        return cls(mean=mean, deviation=deviation)

    @property
    def text(self) -> str:
        if self.mean is None or self.deviation is None:
            return "uniform"
        return f"normal:{plain(self.mean)}:{plain(self.deviation)}"

    def log_weights(self, values: FloatArray) -> FloatArray:
        if self.mean is None or self.deviation is None:
            return np.zeros(len(values))
        # The most likely value gets 0, however narrow the law and however far away its mean.
        away = np.abs(values - float(self.mean))
        least = float(away.min())
        return np.asarray(-(away - least) * (away + least) / 2 / float(self.deviation) ** 2)


@dataclass(frozen=True, kw_only=True)
class Stochastic:
    """Pack so that everything fits with probability at least 1 - risk, over all permutations inside classes.

    There is no sampling: the probability of a plan is computed from exact probabilities of its bins. The model needs
    multisets. Without them, it assumes that one member is at each end of a class's interval and that the others are
    uniform in between. The ends of intervals of a public hierarchy need not be weights, so these are packed by their
    upper ends.

    On noisy releases the probability is that of the noise, for any data and whichever plan is chosen. With a prior, it
    is that of the true weights given the noisy weights, which is right on average over the prior.

    Parameters
    ----------
    risk
        Largest probability that some bin does not fit: at least 0, below 1.
    prior
        For noisy releases: the assumed law of weights over the grid points of the public domain, ``uniform`` or
        ``normal:MEAN:SD``.
    as_published
        Fit a sample of permutations instead, as the paper does; such a plan overfits its sample.
    scenarios, seed
        Number of permutations in that sample, and its seed.

    References
    ----------
    Hoogervorst et al. 2019, section 5.1 (eqs. 11-16).
    """

    name: ClassVar[str] = "stochastic"
    risk: Fraction = DEFAULT_RISK
    prior: str | None = None
    as_published: bool = False
    scenarios: int = DEFAULT_SCENARIOS
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "risk", _risk(self.risk, zero_allowed=True))
        if type(self.scenarios) is not int or self.scenarios < 1 or type(self.seed) is not int or self.seed < 0:
            raise ParameterError(
                f"scenarios must be at least 1, seed at least 0. Got {self.scenarios!r}, {self.seed!r}."
            )
        if self.prior is not None:
            object.__setattr__(self, "prior", Prior.parse(self.prior).text)
            if self.as_published:
                raise ParameterError("the published stochastic model has no prior. Remove prior or as_published.")

    def describe(self) -> PackingModel:
        if self.as_published:
            return PackingModel(
                name=self.name, risk=self.risk, as_published=True, scenarios=self.scenarios, seed=self.seed
            )
        if self.prior is not None:
            return PackingModel(name=self.name, risk=self.risk, prior=self.prior)
        return PackingModel(name=self.name, risk=self.risk)


@dataclass(frozen=True, kw_only=True)
class Sealed:
    """Say only how many rows of each class a bin takes. The owner, who knows the weights, fills the slots.

    With multisets, it packs the true multiset, so privacy costs no truck. With bounds, it packs upper bounds. The cost
    is truck linkage instead: a tight plan can be filled in few ways, and the plan states what they reveal.
    """

    name: ClassVar[str] = "sealed"

    def describe(self) -> PackingModel:
        return PackingModel(name=self.name)


Model = Standard | Robust | Stochastic | Sealed


def _risk(value: Exact, *, zero_allowed: bool) -> Fraction:
    risk = share(value, what="risk")
    if not (0 <= risk < 1) or (risk == 0 and not zero_allowed):
        lower = "at least 0" if zero_allowed else "more than 0"
        raise ParameterError(f"risk must be {lower} and less than 1, for example 0.05. Got {shown_number(risk)}.")
    return risk
