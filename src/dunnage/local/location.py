# SPDX-License-Identifier: Apache-2.0
"""Places: which cell of a public grid a vehicle is in, told so that no report gives away more than epsilon.

:class:`LocalLocation` reports a cell of a grid, or that there is none, through one of the frequency oracles of
:mod:`dunnage.local.oracles` or the planar law of :mod:`dunnage.local.oracles`. Only the standard library is used: this
is part of what a device carries. ``docs/proofs/local-location.md`` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from dunnage.errors import ParameterError
from dunnage.exact import Exact, exact, plain, shown, shown_number
from dunnage.guarantees import (
    REPORT_ASSUMPTIONS,
    Basis,
    LocalDP,
    MetricLocalDP,
    Neighbours,
    Promise,
    WithinCluster,
)
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

ORACLE_NOTE, AREA_NOTE = "local-location.md#frequency-oracles", "local-location.md#area-in-clear"
NOISE_FACTOR = Fraction(5, 2)
"""A map of k inputs is noise if the standard deviation of a share exceeds this many times the mean share 1/k."""


def levels_of(epsilon: Exact | None, tiers: object) -> tuple[Tier, ...]:
    """Return the tiers of a mechanism that was given one epsilon for all, or a list of tiers."""
    if (epsilon is None) == (not tiers):
        raise ParameterError("give either epsilon or tiers: a privacy parameter has no default. Got both or neither.")
    if epsilon is not None:
        return (Tier(name="all", epsilon=exact(epsilon, what="epsilon")),)
    levels = tuple(tiers) if isinstance(tiers, tuple | list) else ()
    if not levels or not all(isinstance(tier, Tier) for tier in levels) or len({t.name for t in levels}) < len(levels):
        raise ParameterError("tiers must be a list of Tier with different names. Give Tier(name=..., epsilon=...).")
    return levels


def set_levels(mechanism: Any) -> tuple[Tier, ...]:
    """Set and return the tiers of a frozen mechanism from the epsilon or the tiers that it was given."""
    levels = levels_of(mechanism.epsilon, mechanism.tiers)
    if mechanism.epsilon is not None:
        object.__setattr__(mechanism, "epsilon", levels[0].epsilon)
    object.__setattr__(mechanism, "tiers", tuple(mechanism.tiers))
    object.__setattr__(mechanism, "levels", levels)
    return levels


def check_switches(**switches: object) -> None:
    """Check that parameters are true or false; a text "false" would count as true."""
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise ParameterError(f"{name} must be true or false. Got {shown(value)}. Write it without quotes.")


def find_law(laws: Mapping[str, Law], levels: tuple[Tier, ...], tier: Tier | str) -> Law:
    """Return the law of a tier, which may be given by its name."""
    name = tier if isinstance(tier, str) else tier.name
    known = next((level for level in levels if level.name == name), None)
    if known is None or (isinstance(tier, Tier) and tier != known):
        raise ParameterError(f"tier {name!r} is not one of this mechanism. Use {', '.join(t.name for t in levels)}.")
    return laws[name]


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


def judge_noise(
    num_devices: int,  # How many vehicles report
    levels: tuple[Tier, ...],  # levels, grid: the tiers and the grid
    grid: Grid,
    *,
    law: Callable[[Grid, Fraction], Law],  # The law of a report on another grid or at another epsilon
    size: Callable[[Grid], int],  # How many shares are estimated on another grid
) -> NoiseVerdict:
    """Judge whether a fleet is large enough for a map or a table of paths, with all tiers alike in size."""
    epsilons = [tier.epsilon for tier in levels]

    def judged(on: Grid, at: list[Fraction]) -> tuple[float, float, bool]:
        return _judge(num_devices, [law(on, epsilon) for epsilon in at], size(on))

    sd, limit, noise = judged(grid, epsilons)
    fewer = range(grid.levels - 1, 1, -1)
    depth = next((at for at in fewer if not judged(coarser(grid, at), epsilons)[2]), None)
    more = next((e for e in _EPSILONS_TRIED if e > max(epsilons) and not judged(grid, [e])[2]), None)
    advice = [f"level {depth}"] if depth is not None else []
    advice += [f"epsilon >= {shown_number(more)}"] if more is not None else []
    text = f"use {' or '.join(advice) or 'more vehicles'}" if noise else f"a share is off by about {sd:.2g}"
    stated = f"{num_devices:,} vehicles at epsilon {', '.join(shown_number(e) for e in epsilons)}: {text}"
    return NoiseVerdict(is_noise=noise, predicted_sd=sd, limit=limit, levels=depth, epsilon=more, message=stated)


def coarser(grid: Grid, levels: int) -> Grid:
    """Return the same box with fewer levels."""
    return Grid(box=grid.box, levels=levels, area_levels=min(grid.area_levels, levels))


def _judge(num_devices: int, laws: list[Law], size: int) -> tuple[float, float, bool]:
    """Return the standard deviation of a mean share, the largest that is not noise, and whether it is noise."""
    each = integer(num_devices, "num_devices", least=1) / len(laws)
    sd = math.sqrt(1 / sum(1 / law.variance(1 / size, each) for law in laws))
    limit = float(NOISE_FACTOR / size)
    return sd, limit, sd > limit or any(isinstance(law, Planar) and blurred(law) for law in laws)


def blurred(law: Planar) -> bool:
    """Return whether reports lie so far off that a map of the box says nothing: by half its shorter side."""
    width, height = law.grid.pitch_km
    return law.mean_distance_km > float(min(width, height)) * law.grid.num_columns / 2


@dataclass(frozen=True, kw_only=True)
class LocalLocation:
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
    subject: ClassVar[str] = "grid"
    num_steps: ClassVar[tuple[int, int]] = (1, 1)
    parameters: ClassVar[tuple[str, ...]] = ("method", "as_published", "area_in_clear")
    methods: ClassVar[tuple[str, ...]] = ("auto", *ORACLES, "planar")
    grid: Grid
    epsilon: Fraction | None = None
    tiers: tuple[Tier, ...] = ()
    method: str = "auto"
    area_in_clear: bool = False
    as_published: bool = False
    levels: tuple[Tier, ...] = field(init=False, repr=False, compare=False)
    _laws: dict[str, Law] = field(init=False, repr=False, compare=False)

    if TYPE_CHECKING:  # what may be passed is wider than what is kept

        def __init__(
            self,
            *,
            grid: Grid,
            epsilon: Exact | None = None,
            tiers: tuple[Tier, ...] | list[Tier] = (),
            method: str = "auto",
            area_in_clear: bool = False,
            as_published: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        levels = set_levels(self)
        for tier in levels:
            check_epsilon(tier.epsilon)
        self._check_method()
        object.__setattr__(self, "_laws", {tier.name: self.law(self.grid, tier.epsilon) for tier in levels})

    def _check_method(self) -> None:
        check_switches(area_in_clear=self.area_in_clear, as_published=self.as_published)
        if not isinstance(self.grid, Grid):
            raise ParameterError("local-location needs a grid. Give Grid(box=..., levels=...).")
        if self.grid.levels < 2:
            raise ParameterError("a map needs a grid of at least 2 levels. Got 1, a single cell. Choose more levels.")
        if self.method not in self.methods:
            raise ParameterError(f"method must be one of {', '.join(self.methods)}. Got {str(self.method)[:40]!r}.")
        if self.as_published and self.method != "auto":
            raise ParameterError("as_published has a method of its own. Leave method out.")
        if self.area_in_clear and self.method == "planar":
            raise ParameterError("planar hides the area by its own law. Leave area_in_clear out.")

    def law(self, grid: Grid, epsilon: Fraction) -> Law:
        """Return the law of a report on a grid at an epsilon."""
        if self.as_published:
            return InClear(
                oracle=PublishedUnary(num_inputs=grid.num_inner + 1, epsilon=epsilon), num_groups=grid.num_areas
            )
        if self.method == "planar":
            return Planar(grid=grid, epsilon=epsilon)
        if self.area_in_clear:
            return InClear(oracle=find_oracle(self.method, grid.num_inner + 1, epsilon), num_groups=grid.num_areas)
        return find_oracle(self.method, grid.num_cells + 1, epsilon)

    def channel(self, tier: Tier | str) -> Law:
        """Return the law of one report of a tier."""
        return find_law(self._laws, self.levels, tier)

    def oracle(self, tier: Tier | str) -> Oracle | Planar:
        """Return the law that :meth:`read` gives symbols of: on the places of one area if that is in clear."""
        law = self.channel(tier)
        return law.oracle if isinstance(law, InClear) else law  # type: ignore[return-value]

    def payload_bits(self, tier: Tier | str) -> int:
        """Return the bits of one report."""
        return self.channel(tier).payload_bits

    def index(self, value: object) -> int:
        """Return the input for a place ``(longitude, latitude)``; never raises.

        What is no such pair, missing or outside the box is the last input. With ``planar`` a place outside the box is
        moved to its border.
        """
        longitude, latitude = read_place(value)
        law = self._laws[self.levels[0].name]
        return law.index(longitude, latitude) if isinstance(law, Planar) else self.grid.cell(longitude, latitude)

    def perturb(self, value: object, *, tier: Tier | str, noise: Noise) -> bytes:
        """Draw a report of a place ``(longitude, latitude)``; there is always one, whatever the value."""
        law = self.channel(tier)
        return encode_symbol(law.perturb(self.index(value), noise), law)

    def read(self, payload: bytes, *, tier: Tier | str) -> list[tuple[int | None, int]]:
        """Read a payload as one pair: the area (None if it is hidden) and a symbol of :meth:`oracle`.

        Raises
        ------
        ReportError
            If no report of this tier can hold the payload.
        """
        return [read_symbol(decode_symbol(payload, law := self.channel(tier)), law)]

    def true_loss(self, tier: Tier | str) -> Fraction | None:
        """Return what one report gives away at worst between any two inputs; None if there is no bound."""
        return self.channel(tier).loss

    def predicted_sd(self, tier: Tier | str, num_devices: int) -> float:
        """Return the standard deviation of a cell's estimated share, if places are spread evenly.

        With the area in clear areas are taken to be alike; with ``planar`` it is that of the blurred map.
        """
        law = self.channel(tier)
        return math.sqrt(law.variance(1 / law.num_inputs, integer(num_devices, "num_devices", least=1)))

    def noise_verdict(self, num_devices: int) -> NoiseVerdict:
        """Judge whether the map of a fleet would be noise, and what would do instead."""
        return judge_noise(num_devices, self.levels, self.grid, law=self.law, size=lambda grid: grid.num_cells + 1)

    def describe(self) -> dict[str, Any]:
        """Give name and all parameters as plain data."""
        return {
            "name": self.name,
            "grid": self.grid.to_dict(),
            "tiers": {tier.name: plain(tier.epsilon) for tier in self.levels},
            "method": self.method,
            "laws": {tier.name: self.oracle(tier).name for tier in self.levels},
            "area_in_clear": self.area_in_clear or self.as_published,
            "as_published": self.as_published,
        }

    def promise(self) -> Promise:
        """State what one report guarantees, for the tier that gives away most; needs no data."""
        epsilon = max(tier.epsilon for tier in self.levels)
        law = self.law(self.grid, epsilon)
        if isinstance(law, Planar):
            return self._planar_promise(law)
        if self.as_published:
            notes: tuple[str, ...] = (ORACLE_NOTE, AREA_NOTE)
            return published_promise(
                self.describe(), epsilon, law, areas=areas_text(self.grid), what="places", notes=notes
            )
        notes = (ORACLE_NOTE, AREA_NOTE) if self.area_in_clear else (ORACLE_NOTE,)
        return sound_promise(self.describe(), law, areas=areas_text(self.grid), notes=notes)

    def _planar_promise(self, law: Planar) -> Promise:
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
    """Say what the areas of a grid are."""
    return f"the {grid.num_areas} areas of the first {grid.area_levels} levels of the grid"


def sound_promise(
    mechanism: Mapping[str, Any], law: Law, *, areas: str, notes: tuple[str, ...], warnings: tuple[str, ...] = ()
) -> Promise:
    """State the guarantee of a report whose loss is the stated epsilon."""
    guarantee, in_clear = _held(law, areas)
    return Promise(
        guarantee=guarantee,
        basis=Basis.PROVED,
        mechanism=mechanism,
        assumptions=REPORT_ASSUMPTIONS,
        in_clear=in_clear,
        warnings=warnings,
        notes=notes,
    )


def published_promise(
    mechanism: Mapping[str, Any], epsilon: Fraction, law: Law, *, areas: str, what: str, notes: tuple[str, ...]
) -> Promise:
    """State what is claimed for a published form, and what holds."""
    held, in_clear = _held(law, areas)
    why = f"every bit is turned over with odds of its own: two {what} differ by epsilon {shown_number(held.epsilon)}"
    return Promise(
        guarantee=LocalDP(epsilon=epsilon, protects="report", neighbours=Neighbours.REPLACE_ONE),
        basis=Basis.CLAIMED,
        mechanism=mechanism,
        assumptions=REPORT_ASSUMPTIONS,
        in_clear=in_clear,
        claim=f"epsilon {shown_number(epsilon)} between any two {what}",
        holds=held,
        why=why + (", and areas are shown as they are: across areas there is no bound" if in_clear else ""),
        notes=notes,
    )


def _held(law: Law, areas: str) -> tuple[LocalDP | WithinCluster, tuple[str, ...]]:
    """Return what holds for a law, and what it shows in clear."""
    if law.loss is not None:
        return LocalDP(epsilon=law.loss, protects="report", neighbours=Neighbours.REPLACE_ONE), ()
    within: Fraction = law.loss_within  # type: ignore[attr-defined]
    guarantee = WithinCluster(epsilon=within, protects="report", neighbours=Neighbours.REPLACE_ONE, clusters=areas)
    return guarantee, (
        f"which of {areas} a report comes from; one of a place outside the box, or missing, comes from the first",
    )
