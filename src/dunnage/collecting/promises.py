# SPDX-License-Identifier: Apache-2.0
"""What a release of estimates states: columns, subjects, losses and promise, which all follow from the public task.

A vehicle sends one report of each purpose at a slot, so their losses add up. With one purpose, the release has its
promise. With several, only one bound for the slot is proved: the sum of true losses in the tier that reveals most;
where an area is in clear, only between values of the same area.

The estimator states this, and a verifier computes it again. Neither needs a report or a random draw.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

import pyarrow as pa

from dunnage.collecting.shuffling import DELTA, shuffled_epsilon
from dunnage.devices.client import TaskLosses
from dunnage.devices.numbers import LocalNumeric, SquareWave, odds_of
from dunnage.devices.paths import LocalTrajectory
from dunnage.devices.places import LocalLocation, NoiseVerdict, Planar
from dunnage.devices.subjects import Grid, Quantity
from dunnage.devices.task import Mechanism, Task
from dunnage.exact import plain
from dunnage.model import certificate
from dunnage.model.guarantees import (
    CLAMPED,
    HONEST_REPORTS,
    INDEPENDENT_TIERS,
    NO_METADATA,
    RANDOM_SLOTS,
    SENT_BY,
    WEIGHED_VALUES,
    Assumption,
    Basis,
    Guarantee,
    LocalDP,
    Neighbours,
    Promise,
    WithinCluster,
)
from dunnage.release.kinds.estimates import COLUMN_TYPES, OUTSIDE

NAME = "estimates"
ONE_SLOT = "slot of reports"  # What is protected if there are several purposes
AUTO, PRECISION, STRATIFY, ONE_TIER, NO_TIER = "auto", "precision", "stratify", "one tier", "none"
COMBINATIONS = (AUTO, PRECISION, STRATIFY)  # how tiers may be combined; see combine_tiers
SIGNIFICANCE = 0.05  # Below this p-value of Cochran's Q, tiers count as different
MAX_BINS = 64
FIXED_BINS = 16  # Of alarms, and of estimates that earlier versions made
_MIN_BINS = 4
_SUPPORT = 2.0
LEFT_OUT = ("damaged", "other_task", "impossible", "duplicate", "conflicting", "other_time")
EMPTY: Mapping[str, str | None] = {name: "" if kind == pa.string() else None for name, kind in COLUMN_TYPES.items()}
_ALWAYS = ("quantity", "purpose", "value", "lower", "upper", "unit")
_IN_CLEAR = "how many reports there are of each purpose and tier, and in which tier and at which slot each was made"
_NOTE = "local-loss-over-time.md#composition"


def columns_of(mechanisms: Mapping[str, Mechanism]) -> dict[str, pa.DataType]:
    wanted = set(_ALWAYS)
    for mechanism in mechanisms.values():
        if isinstance(mechanism, LocalNumeric):
            wanted |= {"attribute", *(("bin_lower", "bin_upper") if has_bins(mechanism) else ())}
        else:
            wanted |= {"path"} if isinstance(mechanism, LocalTrajectory) else {"cell", "lon", "lat"}
    return {name: kind for name, kind in COLUMN_TYPES.items() if name in wanted}


def has_bins(mechanism: LocalNumeric) -> bool:
    return mechanism.method == SquareWave.key


def fixed_bins(steps: int) -> int:
    return min(FIXED_BINS, 2 * steps)


def most_bins(steps: int) -> int:
    return min(MAX_BINS, 1 << (2 * steps).bit_length() - 1)


def num_bins(mechanism: LocalNumeric, quantity: Quantity, reports: Mapping[str, int]) -> int:
    """Return how many bins so many reports of each tier support: a power of two."""
    # Of values spread evenly, the unbiased estimate of one of B shares has a variance of about 2 B / precision, which
    # may be up to 4 / B^2; shares that cannot be negative are about twice as close. One report has the precision
    # slope^2 / density of a window's edge, divided by the number of windows between a bin and an end of the domain.
    place, precision = list(mechanism.quantities).index(quantity), 0.0
    for tier, num in reports.items():
        law = mechanism.reading(tier, place, SquareWave.key)
        assert isinstance(law, SquareWave)
        odds, wide = float(odds_of(law.epsilon)), law.window / law.num_outside  # of the window, in the domain
        slope = (odds - 1) / (wide * odds + 1)
        precision += num * mechanism.channel(tier).share * slope**2 * (1 + wide) * min(1.0, 2 * wide)
    bins, most = min(_MIN_BINS, most_bins(quantity.steps)), most_bins(quantity.steps)
    while bins < most and (2 * bins) ** 3 <= _SUPPORT * precision:
        bins *= 2
    return bins


def bin_edges(quantity: Quantity, bins: int) -> list[float]:
    return [float(quantity.low + (quantity.high - quantity.low) * at / bins) for at in range(bins + 1)]


def place_of(grid: Grid, cell: int) -> dict[str, float]:
    return dict(zip(("lon", "lat"), grid.centre(cell), strict=True)) if cell < grid.num_cells else {}


def spend_id(task: Task) -> str:
    return f"allowances of task {task.digest}"


def has_outside(mechanism: LocalLocation) -> bool:
    """Return whether a map has a share of places outside or missing: the planar law moves them inside."""
    return not isinstance(mechanism.channel(mechanism.levels[0]), Planar)


def num_inside(mechanism: LocalLocation | LocalTrajectory) -> int:
    """Return the number of shares of places or paths, without the last one if it is of those outside or missing."""
    if isinstance(mechanism, LocalLocation):
        return mechanism.grid.num_cells
    last = num_paths(mechanism) - 1
    return last + (mechanism.paths.cells(last) is not None)


def num_paths(mechanism: LocalTrajectory) -> int:
    return mechanism.channel(mechanism.levels[0]).num_inputs


def path_text(mechanism: LocalTrajectory, index: int) -> str:
    """Write a path as its cells in order, ``12>13``; ``outside`` for a place, or all of it, outside or missing."""
    cells = mechanism.paths.cells(index)
    if cells is None:
        return OUTSIDE
    return ">".join(OUTSIDE if cell == mechanism.grid.outside else str(cell) for cell in cells)


def path_index(mechanism: LocalTrajectory, text: str) -> int | None:
    """Return the number of the path that :func:`path_text` writes this way; None for any other text."""
    outside = mechanism.grid.outside
    places = text.split(">") if text != OUTSIDE else [OUTSIDE] * mechanism.steps
    if len(places) != mechanism.steps or any(place != OUTSIDE and len(place) > 8 for place in places):
        return None
    try:
        cells = tuple(outside if place == OUTSIDE else int(place) for place in places)
    except ValueError:
        return None
    if not all(0 <= cell <= outside for cell in cells):
        return None
    index = mechanism.paths.index(cells)  # moves a path that is out of reach
    return index if path_text(mechanism, index) == text else None


def chosen_rule(requested: str, num_tiers: int, p_value: float | None) -> str:
    if num_tiers <= 1:
        return ONE_TIER
    if requested != AUTO:
        return requested
    return STRATIFY if p_value is not None and p_value < SIGNIFICANCE else PRECISION


SHUFFLER = (
    "whoever takes in the reports, before the collector, hides who sent each, in which order and when, and does not "
    "work with it; and all other reports are honest"
)


def shuffled_loss(
    mechanisms: Mapping[str, Mechanism], reports: Mapping[str, Mapping[str, int]], senders: str | None
) -> dict[str, object] | None:
    """Return what one report gives away among all of its purpose and tier; None where senders are known."""
    if senders != "unlinkable":
        return None
    epsilon: dict[str, dict[str, float]] = {}
    for name, by_tier in reports.items():
        losses = {tier: mechanisms[name].true_loss(tier) for tier in by_tier}
        own = {tier: shuffled_epsilon(loss, by_tier[tier]) for tier, loss in losses.items() if loss is not None}
        epsilon |= {name: own} if own else {}
    return {"delta": DELTA, "epsilon": epsilon, "basis": "claimed", "trust": SHUFFLER} if epsilon else None


# Follows the verdict on a map that would be noise if all places were equally busy, where the reports say otherwise
CROWDED = "; the reports show a crowded map, which is nearer to the truth than an even one"


def estimates_promise(
    task: Task,  # task, losses, mechanisms: the task, what its reports give away, and the mechanisms by purpose
    losses: TaskLosses,
    mechanisms: Mapping[str, Mechanism],
    *,
    confidence: float,  # confidence, combine: parameters of the estimate
    combine: str,
    rules: Collection[str],  # Ways in which tiers were combined
    verdicts: Mapping[str, NoiseVerdict],  # Whether the map of each purpose that has one is noise
    senders: str | None = None,  # Who sent the reports to a collector; None if they came otherwise
) -> Promise:
    parts = {name: mechanism.promise() for name, mechanism in mechanisms.items()}
    claimed = any(part.basis is Basis.CLAIMED for part in parts.values())

    def named(texts: Mapping[str, str]) -> str:
        return "; ".join(f"{name}: {text}" if len(texts) > 1 else text for name, text in texts.items() if text)

    guarantee, holds = _guarantees(task, losses, mechanisms, list(parts.values()))
    assumptions = list({item.name: item for part in parts.values() for item in part.assumptions}.values())
    if senders is not None:
        assumptions = [SENT_BY[senders] if item is NO_METADATA else item for item in assumptions]
    assumptions += [RANDOM_SLOTS, CLAMPED, HONEST_REPORTS]
    if PRECISION in rules:
        assumptions.append(WEIGHED_VALUES if combine == AUTO else INDEPENDENT_TIERS)
    noise = (f"{name} is noise: {verdict.message}" for name, verdict in verdicts.items() if verdict.is_noise)
    return Promise(
        guarantee=guarantee,
        basis=Basis.CLAIMED if claimed else Basis.PROVED,
        mechanism={
            "name": NAME,
            "confidence": confidence,
            "combine": combine,
            "purposes": {name: dict(part.mechanism) for name, part in parts.items()},
            "as_published": claimed,
        },
        assumptions=tuple[Assumption, ...](assumptions),
        in_clear=(_IN_CLEAR, *dict.fromkeys(item for part in parts.values() for item in part.in_clear)),
        claim=named({name: part.claim for name, part in parts.items()}),
        holds=holds,
        why=named({name: part.why for name, part in parts.items()}),
        warnings=(*dict.fromkeys(item for part in parts.values() for item in part.warnings), *noise),
        notes=tuple(dict.fromkeys([*(note for _, part in sorted(parts.items()) for note in part.notes), _NOTE])),
    )


def _guarantees(
    task: Task, losses: TaskLosses, mechanisms: Mapping[str, Mechanism], parts: Sequence[Promise]
) -> tuple[Guarantee, Guarantee | None]:
    if len(parts) == 1:
        return parts[0].guarantee, parts[0].holds
    epsilon = loss_within(task, losses, mechanisms)
    bound: LocalDP | WithinCluster = LocalDP(epsilon=epsilon, protects=ONE_SLOT, neighbours=Neighbours.REPLACE_ONE)
    areas = [
        item.clusters for part in parts for item in (part.guarantee, part.holds) if isinstance(item, WithinCluster)
    ]
    if areas:
        clusters = " and ".join(dict.fromkeys(areas))
        bound = WithinCluster(epsilon=epsilon, protects=ONE_SLOT, neighbours=Neighbours.REPLACE_ONE, clusters=clusters)
    if all(part.basis is Basis.PROVED for part in parts):
        return bound, None
    stated = max(
        sum((task.slot_tier(purpose, tier).epsilon for purpose in task.purposes), Fraction(0))
        for tier in task.tier_names
    )
    return LocalDP(epsilon=stated, protects=ONE_SLOT, neighbours=Neighbours.REPLACE_ONE), bound


def loss_within(task: Task, losses: TaskLosses, mechanisms: Mapping[str, Mechanism]) -> Fraction:
    """Return the bound of a slot: the sum over purposes, in the tier that reveals most."""
    # A purpose without a bound, because its areas are in clear, counts as what it reveals between values of one area.
    slots = []
    for tier in task.tier_names:
        slot = losses.bounded_of_slot(tier)
        for purpose in task.purposes:
            if losses.by_report[tier, purpose.name] is None:
                slot += mechanisms[purpose.name].channel(task.slot_tier(purpose, tier)).loss_within  # type: ignore[union-attr]
        slots.append(slot)
    return max(slots)


def loss_measures(task: Task, losses: TaskLosses) -> certificate.EstimateLoss:
    def plain_or_none(loss: Fraction | None) -> int | float | str | None:
        return None if loss is None else plain(loss)

    tiers = {
        tier: certificate.TierLoss(
            reports={purpose.name: plain_or_none(losses.by_report[tier, purpose.name]) for purpose in task.purposes},
            slot=plain_or_none(losses.of_slot(tier)),
            day=plain_or_none(losses.of_day(tier)),
        )
        for tier in task.tier_names
    }
    bounded = all(losses.of_day(tier) is not None for tier in task.tier_names)
    return certificate.EstimateLoss(tiers=tiers, lifetime=plain(task.limits.lifetime) if bounded else None)


def composed(task: Task, losses: TaskLosses, promise: Promise) -> certificate.Composition:
    days = [losses.of_day(tier) for tier in task.tier_names]
    losses_of_days = [day for day in days if day is not None]
    bounded = len(losses_of_days) == len(days) and promise.true_loss(Neighbours.REPLACE_ONE).bounded
    return certificate.Composition(
        rule=certificate.composition_rule(promise.guarantee),
        neighbours=str(Neighbours.REPLACE_ONE),
        total=certificate.Total(epsilon=plain(task.limits.lifetime), delta=0) if bounded else "none",
        total_per_period=certificate.Total(epsilon=plain(max(losses_of_days)), delta=0) if bounded else "none",
    )


def describe_subjects(
    mechanisms: Mapping[str, Mechanism],
    reports: Mapping[str, Mapping[str, int]] | None = None,  # By purpose and tier; without it, FIXED_BINS
) -> list[certificate.AttributeStatement]:
    statements = []
    for name, mechanism in mechanisms.items():
        domain: certificate.JsonObject
        if isinstance(mechanism, LocalNumeric):
            for quantity in mechanism.quantities:
                domain = {"kind": "numeric", "lower": plain(quantity.low), "upper": plain(quantity.high)}
                domain["unit"] = quantity.unit
                if has_bins(mechanism):
                    supported = reports is not None and num_bins(mechanism, quantity, reports[name])
                    domain["bins"] = supported or fixed_bins(quantity.steps)
                statement = certificate.AttributeStatement(
                    name=quantity.name, role="estimate", purpose=name, missing=quantity.missing, domain=domain
                )
                statements.append(statement)
            continue
        if isinstance(mechanism, LocalTrajectory):
            domain = {"kind": "paths", **mechanism.grid.to_dict(), "steps": mechanism.steps, "hops": mechanism.hops}
            domain["num_paths"] = num_paths(mechanism)
        else:
            domain = {"kind": "grid", **mechanism.grid.to_dict(), "outside": has_outside(mechanism)}
        statements.append(certificate.AttributeStatement(name=name, role="estimate", purpose=name, domain=domain))
    return statements
