# SPDX-License-Identifier: Apache-2.0
"""What release and plan tell anyone who has them. Nothing here is ever given the data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.auditing import attacks
from dunnage.auditing.finding import CONFIDENCE, About, Figure, Finding, Progress, wilson
from dunnage.auditing.sight import Known, Sight, Told
from dunnage.domains import Numeric, decimal_scale
from dunnage.errors import ParameterError
from dunnage.guarantees import SampledDP
from dunnage.planning.linkage import MEMBER_NOTE, linkage_of_plan, noisy_linkage, truck_linkage
from dunnage.planning.plan import Linkage, Plan
from dunnage.planning.problem import combinations
from dunnage.release import Release
from dunnage.text import number_text, percent

MOST_PROBES = 1_000_000
_GOLDEN = (math.sqrt(5) - 1) / 2
UNKNOWN_ERROR = " This is an estimate of unknown error."
NOISY_ERROR = " This is right for values that are spread evenly over the public domain; for others it is an estimate."


def outside_findings(sight: Sight, plan: Plan | None, tell: Progress) -> list[Finding]:
    findings = [*_class_risks(sight), *_homogeneity(sight)]
    for axis, name in enumerate(sight.names) if sight.multisets else ():
        values = sight.members[axis]
        share = attacks.best_window(values, sight.class_of_member, 0.0)
        chance = attacks.best_window(values, np.zeros(len(values), dtype=np.int64), 0.0)
        findings.append(
            About("probability", "attributes").finding(
                Figure(f"value linkage, exact ({name})", share, chance),
                f"Somebody who knows only the class guesses the exact {name} of {percent(share)} of the "
                f"{sight.protects}s: the most frequent value of each multiset.",
            )
        )
    tell("looking for values that are certainly absent")
    findings += [_certain_absence(sight, axis) for axis in range(len(sight.told))]
    return [*findings, *_distortion(sight), *truck_findings(sight.release, plan)]


def _class_risks(sight: Sight) -> list[Finding]:
    """Give the risks that follow from class sizes, under the names they are known by."""
    rows, smallest, record = int(sight.sizes.sum()), int(sight.sizes.min()), sight.protects
    mean = len(sight.sizes) / rows
    return [
        About("probability", "records").finding(
            Figure("prosecutor risk", 1 / smallest, 1 / rows),
            f"Somebody who knows that a {record} is in the release, and its class, names its row with at most "
            f"{percent(1 / smallest)}: the smallest class has {smallest:,} rows.",
            {"mean": mean, "smallest_class": smallest},
        ),
        About("probability", "records").finding(
            Figure("journalist risk", 1 / smallest, 1 / rows, (0.0, 1 / smallest)),
            f"Somebody who does not know whether a {record} is in the release names its row with at most "
            f"{percent(1 / smallest)}, the prosecutor's; a population table would tell how much less.",
        ),
        About("share", "records").finding(
            Figure("marketer risk", mean, 1 / rows),
            f"Somebody who names a row for every {record} is right for {percent(mean)} of them: "
            f"{len(sight.sizes):,} classes, {rows:,} rows.",
        ),
    ]


def _homogeneity(sight: Sight) -> Iterator[Finding]:
    """Say how many records are in classes that have one value only, of a sensitive column or a generalised one."""
    class_id, shares = sight.release.data.column("class_id").to_numpy(), []
    for name in sight.sensitive:
        found = attacks.share_homogeneous(class_id, attacks.sensitive_codes(sight.release, name))
        shares.append((name, f"one value of {name}", f"the {name}", *found, ""))
    for axis, told in enumerate(sight.told):
        alike, more = told.lower == told.upper, ""
        if sight.multisets:
            known = np.unique(sight.members[axis], return_counts=True)[1]
        else:  # as far as the release tells
            _, of_value = np.unique(told.lower[alike], return_inverse=True)
            known = np.bincount(of_value.reshape(-1), weights=sight.sizes[alike]).astype(np.int64)
            more = "" if alike.all() else " or more, as not every value is told"
        share = float(sight.sizes[alike].sum() / sight.sizes.sum())
        chance = attacks.homogeneous_by_chance(sight.sizes, known)
        shares.append((told.name, f"one {told.name}", f"the exact {told.name}", share, chance, more))
    for name, one, what, share, chance, more in shares:
        yield About("share", "attributes").finding(
            Figure(f"homogeneity ({name})", share, chance),
            f"{percent(share)} of the {sight.protects}s are in classes with {one} only: whoever knows such a class "
            f"knows {what}. Dealt at random it would be {percent(chance)}{more}.",
        )


def _grid(told: Told) -> Numeric | None:
    """Return the grid to probe: all labels, the public grid, or that of the decimals the release shows."""
    domain = told.numeric
    if domain is None:
        return Numeric(lower=0, upper=int(told.span), resolution=1)
    if domain.resolution is not None:
        return domain
    scale = decimal_scale(np.concatenate([told.lower, told.upper, told.members if told.members is not None else []]))
    if scale is None:
        return None
    try:
        return Numeric(lower=domain.lower, upper=domain.upper, resolution=Fraction(1, scale), unit=domain.unit)
    except ParameterError:  # the domain's own bounds have more decimals
        return None


@dataclass(frozen=True, eq=False)
class _Probes:
    """Values to look for, in combinations of public values, and what each counts."""

    stratum: IntArray
    values: FloatArray
    weight: FloatArray
    num_values: int
    complete: bool

    @classmethod
    def of(cls, sight: Sight, axis: int) -> _Probes:
        """Take all values of the grid in every stratum, or so many of them, evenly spread."""
        told = sight.told[axis]
        grid = _grid(told)
        points = grid.num_steps + 1 if grid is not None else MOST_PROBES + 1
        strata = sight.public.of_class
        num_strata = int(strata.max()) + 1
        rows = np.bincount(strata, weights=sight.sizes)
        if points * num_strata <= MOST_PROBES and grid is not None:
            values = np.tile(grid.grid_values(np.arange(points)), num_strata)
            stratum = np.repeat(np.arange(num_strata), points)
            return cls(stratum, values, (rows / rows.sum() / points)[stratum], points, True)
        index = np.arange(MOST_PROBES)
        # Strata as often as they have rows, and values by the golden ratio: even in both, whatever their numbers.
        stratum = np.searchsorted(np.cumsum(rows), (index + 0.5) * rows.sum() / MOST_PROBES)
        place = np.mod(index * _GOLDEN, 1.0)
        steps = np.minimum((place * points).astype(np.int64), points - 1)
        low = told.numeric.lower_float if told.numeric is not None else 0.0
        values = grid.grid_values(steps) if grid is not None else np.asarray(low + place * told.span)
        return cls(stratum, values, np.full(MOST_PROBES, 1 / MOST_PROBES), points, False)


def _certain_absence(sight: Sight, axis: int) -> Finding:
    """Count the values that the release rules out, for somebody whose public values are known too."""
    probes = _Probes.of(sight, axis)
    low = np.full((len(sight.told), len(probes.values)), -np.inf)
    high = -low
    low[axis] = high[axis] = probes.values
    absent = attacks.record_linkage(sight, Known(stratum=probes.stratum, low=low, high=high)).rows == 0
    share = float(min(probes.weight[absent].sum(), 1.0))
    name, stated = sight.names[axis], sight.release.certificate
    among = f"Of the {probes.num_values:,} values that {name} can have" if probes.complete else f"Of all {name} values"
    hidden = stated.rows.num_suppressed > 0 or any("left out" in item for item in stated.in_clear)
    elsewhere = "the suppressed or left-out ones" if hidden else ""
    if sight.sampled:
        elsewhere = "the noisy rows" if sight.release.noisy else "those not sampled or suppressed"
    return About("share", "table").finding(
        Figure(
            f"certain absence ({name})",
            share,
            0.0,
            (share, share) if probes.complete else wilson(share * len(absent), len(absent)),
        ),
        f"{among}, {percent(share)} are certainly absent: no released {sight.protects} has them. Whoever "
        f"looks for a {sight.protects} with such a value knows that it was not released"
        + (" in a class" if sight.release.noisy else "")
        + (f"; it may still be among {elsewhere}." if elsewhere else "."),
        {"values": probes.num_values, "every_value_tried": probes.complete},
    )


def _distortion(sight: Sight) -> list[Finding]:
    """Recompute the loss of eq. 7 a record, suppressed ones at the price alpha."""
    alpha, suppressed = float(sight.mechanism.price_of_suppression), sight.release.certificate.rows.num_suppressed
    counting = (
        "over the released ones alone"
        if sight.sampled
        else f"suppressed {sight.protects}s counted at {number_text(alpha)}"
    )
    records = int(sight.sizes.sum()) + suppressed
    sums = {told.name: math.fsum((sight.sizes * (told.upper - told.lower)).tolist()) / told.span for told in sight.told}
    losses = {name: (wide + alpha * suppressed) / records for name, wide in sums.items()}
    weights = sight.mechanism.weights(sight.release)
    total = sum(weights[name] * loss for name, loss in losses.items()) / sum(weights.values())
    findings = [
        About("share", "utility").finding(
            Figure("total distortion", total, 1.0),
            f"Intervals are {percent(total)} of the domain wide on average, {counting}; 100 % would tell nothing.",
            {"attributes": losses, "alpha": alpha, "suppressed": suppressed},
        )
    ]
    if len(losses) > 1:
        findings += [
            About("share", "utility").finding(
                Figure(f"distortion ({name})", loss, 1.0), f"{percent(loss)} of the domain of {name} is left open."
            )
            for name, loss in losses.items()
        ]
    return findings


def truck_findings(release: Release, plan: Plan | None) -> list[Finding]:
    """Compute from assignment or slots how likely somebody who knows a package names its truck.

    Nothing is found if the release does not say how its noise was drawn.
    """
    if plan is None:
        return []
    if release.noisy and (plan.slots is not None or len(plan.assignment) != len(release)):
        raise ParameterError("the plan does not assign every row of the release once. Plan on the release anew.")
    stated = noisy_linkage(release, plan.assignment) if release.noisy else linkage_of_plan(plan, release)
    if stated is None:
        return []
    record, chance = release.certificate.guarantee.protects, without_release(release, plan)
    # A package may be missing from the release because it was not sampled.
    sample = isinstance(release.certificate.guarantee, SampledDP) and not release.noisy
    findings = []
    for name, part, words in (("truck linkage", "mean", "on average"), ("truck linkage, worst", "worst", "at worst")):
        value, baseline = getattr(stated, part), getattr(chance, part)
        # An estimate comes without its error: it is not below what public values give, nor above certainty.
        interval, error = (min(value, baseline), 1.0), UNKNOWN_ERROR
        if stated.kind == "exact":
            interval, error = (value, value), ""
        elif release.noisy:
            interval, error = noisy_interval(stated, part), NOISY_ERROR
        findings.append(
            About("probability", "trucks").finding(
                Figure(name, value, baseline, interval),
                f"Somebody who knows the values of a {record} and sees release and plan names its truck with "
                f"{percent(value)} {words}; {chance.words(baseline, record)}."
                + error
                + (f" This is {MEMBER_NOTE}." if sample else ""),
                {"kind": stated.kind, "note": stated.note},
            )
        )
    return findings


def noisy_interval(stated: Linkage, part: str) -> tuple[float, float]:
    """Bound the ``mean`` or ``worst`` of noisy linkage under its prior: a point, if every true value was looked at."""
    value = stated.mean if part == "mean" else stated.worst
    if stated.points is None:
        return value, value
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * (stated.error or 0.0)
    return (max(0.0, value - reach), min(1.0, value + reach)) if part == "mean" else (value, 1.0)


@dataclass(frozen=True)
class TruckByChance:
    """How likely somebody who sees the plan, and knows no more of a record than is public, names its truck."""

    mean: float  # mean, worst: over all planned records, and for the public values that tell most
    worst: float
    columns: tuple[str, ...]  # The public columns; without any the fullest truck is named for all

    def words(self, chance: float, record: str) -> str:
        if not self.columns:
            return f"the fullest truck has {percent(chance)} of the {record}s"
        return f"who knows only what is public ({', '.join(self.columns)}), and the plan, does with {percent(chance)}"


def without_release(release: Release, plan: Plan) -> TruckByChance:
    """Return the baseline of truck linkage: the fullest truck among those that public values leave.

    Of a plan by depot that is the fullest truck of the depot. Public values are in clear, and known without a release.
    """
    public = [name for name, item in release.attributes.items() if item.role == "public"]
    codes = combinations(release, public)
    if plan.slots is None:
        found = truck_linkage(codes, plan.assignment)
        return TruckByChance(found.mean, found.worst, tuple(public))
    # The rows of a class have the same public values.
    class_id = release.data.column("class_id").combine_chunks().to_numpy(zero_copy_only=False)
    of_class = np.zeros(int(class_id.max()) + 1, dtype=np.int64)
    of_class[class_id] = codes
    slots = plan.slots
    found = truck_linkage(np.repeat(of_class[slots.class_id], slots.count), np.repeat(slots.bin, slots.count))
    return TruckByChance(found.mean, found.worst, tuple(public))
