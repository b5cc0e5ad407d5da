# SPDX-License-Identifier: Apache-2.0
"""Places: which cell of a public grid a vehicle is in, told so that no report gives away more than epsilon.

:class:`LocalLocation` reports a cell of a grid, or that there is none, through one of the frequency oracles of
:mod:`dunnage.local.oracles` or the planar law of :mod:`dunnage.local.oracles`. Only the standard library is used: this
is part of what a device carries. ``docs/proofs/local-location.md`` has the proofs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar, Generic, Protocol, TypeVar

from dunnage.errors import ParameterError
from dunnage.exact import Exact, exact, plain, shown, shown_number
from dunnage.guarantees import REPORT_ASSUMPTIONS, Basis, LocalDP, MetricLocalDP, Neighbours, Promise, WithinCluster
from dunnage.local.oracles import (
    ORACLES,
    HadamardResponse,
    InClear,
    Law,
    OptimisedUnary,
    Oracle,
    Planar,
    PublishedUnary,
    RandomisedResponse,
    SymmetricUnary,
    check_epsilon,
    choose_oracle,
    decode_symbol,
    encode_symbol,
    find_oracle,
    read_symbol,
)
from dunnage.local.subjects import Grid, Tier
from dunnage.noise import Noise, integer

__all__ = [
    "HadamardResponse",
    "InClear",
    "LocalLocation",
    "NoiseVerdict",
    "OptimisedUnary",
    "Planar",
    "PublishedUnary",
    "RandomisedResponse",
    "SymmetricUnary",
    "choose_oracle",
]


class _ReportLaw(Protocol):
    @property
    def payload_bits(self) -> int: ...

    @property
    def loss(self) -> Fraction | None: ...


LawType = TypeVar("LawType", bound=_ReportLaw)
ORACLE_NOTE, AREA_NOTE = "local-location.md#frequency-oracles", "local-location.md#area-in-clear"
NOISE_FACTOR = Fraction(5, 2)
"""A map of k inputs is noise if the standard deviation of a share exceeds this many times the mean share 1/k."""


@dataclass(frozen=True, kw_only=True)
class Tiered(Generic[LawType]):
    """What local mechanisms share: public tiers, or one epsilon for all devices, and a law of reports for each."""

    epsilon: Exact | None = None
    tiers: Sequence[Tier] = ()
    levels: tuple[Tier, ...] = field(init=False, repr=False, compare=False)
    _laws: dict[str, LawType] = field(init=False, repr=False, compare=False)

    def _set_levels(self) -> None:
        given: object = self.tiers
        if (self.epsilon is None) == (not given):
            raise ParameterError(
                "give either epsilon or tiers: a privacy parameter has no default. Got both or neither."
            )
        levels = tuple(given) if isinstance(given, tuple | list) else ()
        if self.epsilon is not None:
            levels = (Tier(name="all", epsilon=exact(self.epsilon, what="epsilon")),)
            object.__setattr__(self, "epsilon", levels[0].epsilon)
        alike = {type(tier) for tier in levels} == {Tier} and len({tier.name for tier in levels}) == len(levels)
        if not alike:
            raise ParameterError("tiers must be a list of Tier with different names. Give Tier(name=..., epsilon=...).")
        object.__setattr__(self, "tiers", tuple(self.tiers))
        object.__setattr__(self, "levels", levels)

    def channel(self, tier: Tier | str) -> LawType:
        """Return the law of one report of a tier, which may be given by its name."""
        name = tier if isinstance(tier, str) else tier.name
        known = next((level for level in self.levels if level.name == name), None)
        if known is None or (isinstance(tier, Tier) and tier != known):
            names = ", ".join(level.name for level in self.levels)
            raise ParameterError(f"tier {shown(name)} is not one of this mechanism. Use {names}.")
        return self._laws[name]

    def payload_bits(self, tier: Tier | str) -> int:
        return self.channel(tier).payload_bits

    def true_loss(self, tier: Tier | str) -> Fraction | None:
        """Return what one report gives away at worst between any two inputs; None if there is no bound."""
        return self.channel(tier).loss


@dataclass(frozen=True, kw_only=True)
class NoiseVerdict:
    """Whether what is estimated would be noise, and what to do about it."""

    is_noise: bool  # Whether a share would be off by more than :data:`NOISE_FACTOR` mean shares (standard deviation)
    # predicted_sd, limit: the predicted standard deviation of a share, and the largest that is not noise
    predicted_sd: float
    limit: float
    # levels, epsilon: the deepest level, and the least epsilon (in halves, up to 5), that would do; None if none does
    levels: int | None
    epsilon: Fraction | None
    message: str  # All of this in a sentence


_EPSILONS_TRIED = tuple(Fraction(half, 2) for half in range(1, 11))  # beyond 5 a report hides little: no advice


@dataclass(frozen=True, kw_only=True)
class OnGrid(Tiered[Law], ABC):
    """What mechanisms of places and of paths share; not a mechanism by itself."""

    name: ClassVar[str]
    subject: ClassVar[str] = "grid"
    grid: Grid
    method: str = "auto"
    area_in_clear: bool = False
    as_published: bool = False

    def __post_init__(self) -> None:
        self._set_levels()
        for tier in self.levels:
            check_epsilon(tier.epsilon)
        for name in ("area_in_clear", "as_published"):
            if not isinstance(getattr(self, name), bool):  # a text "false" would count as true
                got = shown(getattr(self, name))
                raise ParameterError(f"{name} must be true or false. Got {got}. Write it without quotes.")
        self._check_method()
        object.__setattr__(self, "_laws", {tier.name: self.law(self.grid, tier.epsilon) for tier in self.levels})

    @abstractmethod
    def _check_method(self) -> None: ...

    @abstractmethod
    def law(self, grid: Grid, epsilon: Fraction) -> Law:
        """Return the law of a report on a grid at an epsilon."""

    @abstractmethod
    def num_shares(self, grid: Grid) -> int:
        """Return how many shares are told apart on a grid if nothing is in clear."""

    @abstractmethod
    def index(self, value: object) -> int:
        """Return the input for a value; never raises."""

    def oracle(self, tier: Tier | str) -> Oracle | Planar:
        """Return the law that a payload is read as symbols of: on the places of one area if that is in clear."""
        law = self.channel(tier)
        return law.oracle if isinstance(law, InClear) else law  # type: ignore[return-value]

    def perturb(self, value: object, *, tier: Tier | str, noise: Noise) -> bytes:
        """Draw a report of a place ``(longitude, latitude)``, or a path; there is always one, whatever the value."""
        law = self.channel(tier)
        return encode_symbol(law.perturb(self.index(value), noise), law)

    def predicted_sd(self, tier: Tier | str, num_devices: int) -> float:
        """Return the standard deviation of an estimated share, if cells, or reachable paths, are all alike.

        With the area in clear areas are taken to be alike; with ``planar`` it is that of the blurred map.
        """
        share = 1 / self.num_shares(self.grid)
        return math.sqrt(self.channel(tier).variance(share, integer(num_devices, "num_devices", least=1)))

    def noise_verdict(self, num_devices: int) -> NoiseVerdict:
        """Judge whether a fleet, its tiers alike in size, is large enough for shares, and what would do instead."""
        epsilons, grid = [tier.epsilon for tier in self.levels], self.grid
        num = integer(num_devices, "num_devices", least=1)

        def judged(on: Grid, at: list[Fraction]) -> tuple[float, float, bool]:
            """Return the standard deviation of a mean share, the largest that is not noise, and whether it is noise."""
            laws, size = [self.law(on, epsilon) for epsilon in at], self.num_shares(on)
            sd = math.sqrt(1 / sum(1 / law.variance(1 / size, num / len(laws)) for law in laws))
            limit = float(NOISE_FACTOR / size)
            return sd, limit, sd > limit or any(isinstance(law, Planar) and law.blurs_all for law in laws)

        sd, limit, noise = judged(grid, epsilons)
        coarser = (
            replace(grid, levels=at, area_levels=min(grid.area_levels, at)) for at in range(grid.levels - 1, 1, -1)
        )
        depth = next((on.levels for on in coarser if not judged(on, epsilons)[2]), None)
        more = next((e for e in _EPSILONS_TRIED if e > max(epsilons) and not judged(grid, [e])[2]), None)
        advice = [f"level {depth}"] if depth is not None else []
        advice += [f"epsilon >= {shown_number(more)}"] if more is not None else []
        text = f"use {' or '.join(advice) or 'more vehicles'}" if noise else f"a share is off by about {sd:.2g}"
        stated = f"{num_devices:,} vehicles at epsilon {', '.join(shown_number(e) for e in epsilons)}: {text}"
        return NoiseVerdict(is_noise=noise, predicted_sd=sd, limit=limit, levels=depth, epsilon=more, message=stated)

    def describe(self) -> dict[str, object]:
        return {
            "name": self.name,
            "grid": self.grid.to_dict(),
            "tiers": {tier.name: plain(tier.epsilon) for tier in self.levels},
            "method": self.method,
            "laws": {tier.name: self.oracle(tier).name for tier in self.levels},
            "area_in_clear": self.area_in_clear or self.as_published,
            "as_published": self.as_published,
        }

    def promised(self, *, areas: str, what: str, notes: tuple[str, ...], warnings: tuple[str, ...] = ()) -> Promise:
        """State what one report guarantees, for the tier that gives away most, or what is claimed for it."""
        epsilon = max(tier.epsilon for tier in self.levels)
        law, in_clear = self.law(self.grid, epsilon), ""
        held: LocalDP | WithinCluster
        if law.loss is not None:
            held = LocalDP(epsilon=law.loss, protects="report", neighbours=Neighbours.REPLACE_ONE)
        else:
            within: Fraction = law.loss_within  # type: ignore[attr-defined]
            held = WithinCluster(epsilon=within, protects="report", neighbours=Neighbours.REPLACE_ONE, clusters=areas)
            in_clear = f"which of {areas} a report comes from; "
            in_clear += "one of a place outside the box, or missing, comes from the first"
        stated = Promise(
            guarantee=held,
            basis=Basis.PROVED,
            mechanism=self.describe(),
            assumptions=REPORT_ASSUMPTIONS,
            in_clear=(in_clear,) if in_clear else (),
            warnings=warnings,
            notes=notes,
        )
        if not self.as_published:
            return stated
        why = (
            f"every bit is turned over with odds of its own: two {what} differ by epsilon {shown_number(held.epsilon)}"
        )
        return replace(
            stated,
            guarantee=LocalDP(epsilon=epsilon, protects="report", neighbours=Neighbours.REPLACE_ONE),
            basis=Basis.CLAIMED,
            claim=f"epsilon {shown_number(epsilon)} between any two {what}",
            holds=held,
            why=why + (", and areas are shown as they are: across areas there is no bound" if in_clear else ""),
        )


@dataclass(frozen=True, kw_only=True)
class LocalLocation(OnGrid):
    """Report which cell of a public grid a vehicle is in, or that it is outside or its place is missing.

    Parameters
    ----------
    grid
        The public grid.
    epsilon, tiers
        What one report may give away: one number for all, or public tiers. With ``planar``: per kilometre.
    method
        ``auto`` (see :func:`choose_oracle`), ``randomised-response``, ``symmetric-unary``, ``optimised-unary``,
        ``hadamard``; or ``planar``: a nearby cell, for a promise that fades with distance.
    area_in_clear
        Show the area of the grid as it is, and hide only the place inside it.
    as_published
        The published e-LT_LDP: area in clear, and each bit of the place inside it turned over at epsilon.

    Guarantee
    ---------
    Epsilon-local differential privacy of one report, proved. With ``area_in_clear`` only between places of one area;
    ``planar``: epsilon per kilometre; ``as_published``: claimed, and really twice epsilon, within the area only.

    Utility
    -------
    Unbiased shares; :meth:`predicted_sd` says how far they are off before anything is collected.

    References
    ----------
    Yao et al. 2024, Algorithms 3 and 4, and the oracles cited in this module.

    Examples
    --------
    >>> grid = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=5)
    >>> LocalLocation(grid=grid, epsilon="0.5").noise_verdict(9858).message
    '9,858 vehicles at epsilon 0.5: use level 3 or epsilon >= 2'
    """

    name: ClassVar[str] = "local-location"
    num_steps: ClassVar[tuple[int, int]] = (1, 1)
    parameters: ClassVar[tuple[str, ...]] = ("method", "as_published", "area_in_clear")
    methods: ClassVar[tuple[str, ...]] = ("auto", *ORACLES, Planar.name)

    def _check_method(self) -> None:
        if not isinstance(self.grid, Grid):
            raise ParameterError(f"{self.name} needs a grid. Give Grid(box=..., levels=...).")
        if self.grid.levels < 2:
            raise ParameterError("a map needs a grid of at least 2 levels. Got 1, a single cell. Choose more levels.")
        if self.method not in self.methods:
            raise ParameterError(f"method must be one of {', '.join(self.methods)}. Got {str(self.method)[:40]!r}.")
        if self.as_published and self.method != "auto":
            raise ParameterError("as_published has a method of its own. Leave method out.")
        if self.area_in_clear and self.method == Planar.name:
            raise ParameterError("planar hides the area by its own law. Leave area_in_clear out.")

    def law(self, grid: Grid, epsilon: Fraction) -> Law:
        if self.as_published:
            return InClear(
                oracle=PublishedUnary(num_inputs=grid.num_inner + 1, epsilon=epsilon), num_groups=grid.num_areas
            )
        if self.method == Planar.name:
            return Planar(grid=grid, epsilon=epsilon)
        if self.area_in_clear:
            return InClear(oracle=find_oracle(self.method, grid.num_inner + 1, epsilon), num_groups=grid.num_areas)
        return find_oracle(self.method, grid.num_cells + 1, epsilon)

    def num_shares(self, grid: Grid) -> int:
        return grid.num_cells + 1

    def index(self, value: object) -> int:
        """Return the input for a place ``(longitude, latitude)``; never raises.

        What is no such pair, missing or outside the box is the last input. With ``planar`` a place outside the box is
        moved to its border.
        """
        longitude, latitude = read_place(value)
        law = self._laws[self.levels[0].name]
        return law.index(longitude, latitude) if isinstance(law, Planar) else self.grid.cell(longitude, latitude)

    def read(self, payload: bytes, *, tier: Tier | str) -> list[tuple[int | None, int]]:
        """Read a payload as one pair: the area (None if it is hidden) and a symbol of :meth:`oracle`."""
        return [read_symbol(decode_symbol(payload, law := self.channel(tier)), law)]

    def promise(self) -> Promise:
        """State what one report guarantees, for the tier that gives away most; needs no data."""
        if self.method != Planar.name:
            notes = (ORACLE_NOTE, AREA_NOTE) if self.area_in_clear or self.as_published else (ORACLE_NOTE,)
            return self.promised(areas=areas_text(self.grid), what="places", notes=notes)
        law = Planar(grid=self.grid, epsilon=max(tier.epsilon for tier in self.levels))
        return Promise(
            guarantee=MetricLocalDP(
                epsilon=law.epsilon, protects="report", neighbours=Neighbours.REPLACE_ONE, distance="1 km"
            ),
            basis=Basis.PROVED,
            mechanism=self.describe(),
            assumptions=REPORT_ASSUMPTIONS,
            warnings=(
                f"between the corners of the box a report gives away epsilon {float(law.loss):.4g}",
                "a place outside the box is moved to its border, a missing one to its middle",
                "distances are those between cells",
            ),
            notes=("local-location.md#the-planar-law",),
        )


def read_place(value: object) -> tuple[object, object]:
    """Take a private value apart into longitude and latitude; a pair of None if it is no pair."""
    try:
        longitude, latitude = iter(value)  # type: ignore[call-overload]
    except Exception:  # a private value of any type at all must not stop the report
        return None, None
    return longitude, latitude


def areas_text(grid: Grid) -> str:
    return f"the {grid.num_areas} areas of the first {grid.area_levels} levels of the grid"
