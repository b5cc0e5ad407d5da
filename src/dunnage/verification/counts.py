# SPDX-License-Identifier: Apache-2.0
"""Checks of releases of counts: cells, sums, shares of epsilon, scales of noise, and what one trip and rider lose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from dunnage.arrays import IntArray
from dunnage.certificate import Certificate, meaning
from dunnage.errors import CheckFailed, ParameterError
from dunnage.exact import decimal_text, exact, plain
from dunnage.guarantees import (
    BOUNDED_CONTRIBUTION,
    EPSILON_PER_TRIP,
    PUBLIC_DOMAIN,
    PUBLIC_FEATURES,
    SYSTEM_ENTROPY,
    Neighbours,
    Promise,
    PureDP,
    guarantee_from,
)
from dunnage.laws import MOST_EPSILON
from dunnage.release import Release
from dunnage.release_words import CELLS
from dunnage.schema import RIDER, TRIP
from dunnage.text import several
from dunnage.trips import COLUMNS, PAIR_COLUMNS, Universe, is_nested, known_columns
from dunnage.verification.reading import num_missing, require, same

TOTAL = "total"
MOST_RESIDUAL = 1e-10
"""Largest relative residual of the optimality conditions at which counts are those nearest to the noisy sums."""

COUNTS_NOT_CHECKED = (
    "that the counts were made from the owner's true trips, and all of them",
    "that stops, windows, zones and modes were chosen without looking at the data",
    "that the noise was drawn as stated, afresh for every sum, and that nothing else was used of the true trips",
    "that what is said to be in clear and assumed is complete",
    "that the ledger holds the spend, and what else was released about the same trips",
)
BOUND_NOT_CHECKED = ("that of each rider no more trips were counted than is stated, and that nobody has two cards",)
CITY_NOT_CHECKED = ("which zone a stop and which mode a pair of stops has, and so the number of groups by them",)

_NOISY, _TREE, _FITTED = "noisy-counts", "hierarchical-counts", "constrained-counts"
_FIGURES: Mapping[str, tuple[str, ...]] = {
    _NOISY: ("noise",),
    _TREE: ("features",),
    _FITTED: ("features", "kkt_residual"),
}
"""Figures of their own that mechanisms state."""

_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    _NOISY: ("rounding", "threshold"),
    _TREE: ("features", "budget", "prune"),
    _FITTED: ("features", "budget_shares", "feature_weights", "structure"),
}
"""Parameters of mechanisms, besides name, epsilon and whether they are as published."""

_CHOICES: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    _NOISY: {"rounding": ("round", "floor")},
    _TREE: {"budget": ("geometric", "uniform"), "prune": (True, False)},
    _FITTED: {"structure": ("flat", "hierarchical"), "feature_weights": ("size", "uniform")},
}
"""What parameters of mechanisms may be."""

_HIDDEN = ("origin_zone", "destination_zone", "mode")
"""Columns that a certificate does not tell the values of."""

_ZONES = ("origin_zone", "destination_zone")
_NAMED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "3": ((), ("window",)),
    "4": ((), ("window",), (*_ZONES, "window")),
    "5": ((), ("window",), (*_ZONES, "window"), ("mode", "window")),
}
_MARGIN = ("origin", "destination")
_CELLS_SHARE = Fraction(3, 5)
_MARGINS_CELLS_SHARE, _MARGIN_SHARE = Fraction(13, 20), Fraction(1, 20)
"""Parts of epsilon that presets give to cells and margin; the other features have the rest evenly."""
_SHARE_TOLERANCE = 1e-6
_MOST_THRESHOLD = 2**63 - 1
_MOST_BOUND = 2**31 - 1
_ASSUMED = (PUBLIC_DOMAIN, PUBLIC_FEATURES, SYSTEM_ENTROPY)
_UNITS = {TRIP: EPSILON_PER_TRIP, RIDER: BOUNDED_CONTRIBUTION}
"""What is assumed whatever is protected, and by what is protected."""
_Columns = tuple[str, ...]


def counts_not_checked(certificate: Certificate) -> tuple[str, ...]:
    """Return what nobody can see from a release of counts alone."""
    body = certificate.body
    hidden = any(name in str(body["measures"].get("features", "")) for name in _HIDDEN)
    bound = body["guarantee"].get("protects") == RIDER
    return (*COUNTS_NOT_CHECKED, *(BOUND_NOT_CHECKED if bound else ()), *(CITY_NOT_CHECKED if hidden else ()))


def check_counts(release: Release) -> None:
    """Check all that follows from the certificate and the table of a release of counts, wherever it came from."""
    try:
        for check in (check_count_columns, check_cells, check_count_loss):
            check(release, Path())
        body = release.certificate.body
        promise = Promise(
            guarantee=guarantee_from(body["guarantee"]),
            basis=release.certificate.basis,
            mechanism=body["mechanism"],
            why=body.get("why", ""),
        )
        require(same(meaning(promise), body["meaning"]), "certificate.json: the odds do not follow from the guarantee")
    except (CheckFailed, MemoryError):
        raise
    except Exception as failure:  # whatever goes wrong, whoever made the release made it malformed
        raise CheckFailed(f"the contents do not have the form of a release ({type(failure).__name__})") from None


def check_count_columns(release: Release, folder: Path) -> str:
    """Check that there is one table of counts, of the columns and types that tell types of trips apart."""
    universe = _universe(release)
    require(list(release.tables) == ["data"], "the tables are not those that the certificate speaks of")
    kinds = {**dict.fromkeys(universe.cell_columns, pa.string()), "count": pa.int64()}
    found = {item.name: item.type for item in release.data.schema}
    fits = release.data.column_names == list(kinds) and found == kinds
    require(fits, "data: the columns are not those that the certificate speaks of")
    missing = [name for name in kinds if num_missing(release.data.column(name))]
    require(not missing, f"data: missing values in {', '.join(missing)}")
    return "tables and columns are those that the certificate speaks of, without missing values"


def _universe(release: Release) -> Universe:
    """Read the universe back, and check that nothing else is stated of it, and days follow from the calendar."""
    body = release.certificate.body
    wrong = "certificate.json: the attributes do not tell the types of trips"
    try:
        universe, period = release.universe, body.get("period")
        time, days = universe.time, universe.days
        num_dates: tuple[int, ...] = ()
        if time is not None and (time.day is not None or not days):  # not by a column of their own
            days, num_dates = time.days(period), time.num_dates(period)
    except (ParameterError, KeyError, TypeError, ValueError):
        raise CheckFailed(wrong) from None
    require(same(universe.describe(), body["attributes"]), wrong)
    fits = (days, num_dates) == (universe.days, universe.num_dates)
    require(fits, "certificate.json: days, or their number, do not follow from the service dates")
    return universe


def check_cells(release: Release, folder: Path) -> str:
    """Check that every type of trips is in the public domain, listed once and in order, with a count above zero."""
    cells, counts = release.counted()
    require(bool((np.diff(cells) > 0).all()), "data: types of trips are listed twice, or not in order")
    require(bool((counts > 0).all()), "data: a count is not above zero")
    universe = release.universe
    figures = {"trips": _sum(counts), "cells": universe.num_cells, "cells_with_trips": len(cells)}
    measures = release.certificate.body["measures"]
    wrong = [name for name, value in figures.items() if not same(value, measures.get(name))]
    require(not wrong, f"certificate.json: wrong figures: {', '.join(wrong)}")
    found = f"{several(figures['trips'], 'trip')} of {several(len(cells), 'type')}"
    return (
        f"{found}; each is one of the {universe.num_cells:,} types of the public domain, listed once and in order, "
        "with a count above zero"
    )


def _sum(counts: IntArray) -> int:
    """Add up in two halves, so that nothing overflows whatever the counts are."""
    return (int((counts >> 32).sum()) << 32) + int((counts & 0xFFFFFFFF).sum())


def check_count_loss(release: Release, folder: Path) -> str:
    """Check that epsilon is that of all noisy sums together, and what one trip and one rider lose."""
    body = release.certificate.body
    mechanism, measures = body["mechanism"], body["measures"]
    epsilon = _epsilon(release)
    riders = body["guarantee"]["protects"] == RIDER
    bounded = ["contribution"] if riders else []
    names = {"trips", "cells", "cells_with_trips", "loss", *bounded, *_FIGURES[mechanism["name"]]}
    require(measures.keys() == names, "certificate.json: figures that do not belong to such counts")
    change = _bound(release) if riders else 1
    _check_losses(measures["loss"], epsilon, change if riders else None)
    if mechanism["name"] == _NOISY:
        _check_plain_noise(release, change / epsilon)
    else:
        _check_features(release, epsilon, change)
    if mechanism["name"] == _FITTED:
        _check_residual(measures["kkt_residual"], published=_as_published(mechanism))
    most = f", of at most {change:,} trips of a rider" if change > 1 else ""
    return f"epsilon {decimal_text(epsilon)} is that of all noise together{most}, by its stated scales"


def _epsilon(release: Release) -> Fraction:
    """Check that the mechanism keeps the guarantee that is stated, and return its epsilon."""
    body, guarantee = release.certificate.body, release.certificate.guarantee
    mechanism = body["mechanism"]
    if type(guarantee) is not PureDP or guarantee.neighbours is not Neighbours.ADD_REMOVE:
        raise CheckFailed("certificate.json: the mechanism keeps another guarantee")
    require(mechanism["name"] in _FIGURES, "certificate.json: the mechanism keeps another guarantee")
    require(guarantee.protects in (TRIP, RIDER), "certificate.json: counts of trips protect a trip or a rider")
    require(0 < guarantee.epsilon <= MOST_EPSILON, "certificate.json: epsilon is out of range")
    _check_assumptions(body["assumptions"], guarantee.protects)
    names = {"name", "epsilon", "as_published", *_PARAMETERS[mechanism["name"]]}
    require(mechanism.keys() == names, "certificate.json: other parameters than the mechanism has")
    agree = same(mechanism["epsilon"], body["guarantee"]["epsilon"])
    require(agree, "certificate.json: mechanism and guarantee have another epsilon")
    for name, known in _CHOICES[mechanism["name"]].items():
        chosen = any(same(mechanism.get(name), choice) for choice in known)
        require(chosen, f"certificate.json: {name} is not one that the mechanism knows")
    require("holds" not in body, "certificate.json: says what holds instead, where nothing does")
    return guarantee.epsilon


def _as_published(mechanism: Mapping[str, Any]) -> bool:
    published = mechanism["as_published"]
    require(isinstance(published, bool), "certificate.json: does not say whether it was made as published")
    return cast("bool", published)


def _check_assumptions(stated: Mapping[str, str], protects: str) -> None:
    """Check that everything is assumed that the proof needs for what is protected, and nothing for another unit."""
    needed = {item.name: item.says for item in (*_ASSUMED, _UNITS[protects])}
    wrong = [name for name, says in needed.items() if not same(says, stated.get(name))]
    wrong += [unit.name for other, unit in _UNITS.items() if other != protects and unit.name in stated]
    require(not wrong, f"certificate.json: one {protects} is protected under other assumptions: {', '.join(wrong)}")


def _bound(release: Release) -> int:
    """Check how many trips of a rider were counted, and return how many these are in all."""
    body, time = release.certificate.body, release.universe.time
    stated = body["measures"]["contribution"]
    wrong = "certificate.json: does not state how many trips of a rider were counted"
    require(isinstance(stated, dict) and stated.keys() == {"max", "per", "days"}, wrong)
    most, per, days = stated["max"], stated["per"], stated["days"]
    require(type(most) is int and 1 <= most <= _MOST_BOUND and per in ("day", "period"), wrong)
    if per == "period":
        require(days is None, wrong)
        return cast("int", most)
    dates = time.calendar(body.get("period")) if time is not None else None
    follows = dates is not None and same(len(dates), days)
    require(follows, "certificate.json: the days of a rider do not follow from the service dates")
    return int(most * days)


def _check_losses(loss: Mapping[str, Any], epsilon: Fraction, most: int | None) -> None:
    """Check what one trip and one rider lose, of whom at most so many trips were counted; None if not bounded."""
    require(loss.keys() == {TRIP, RIDER}, "certificate.json: does not state what one trip and one rider lose")
    told = {TRIP: plain(epsilon), RIDER: None}
    if most is not None:
        # One trip more of a rider who has the most may take the place of another: two counts change.
        told = {TRIP: plain(2 * epsilon / most), RIDER: plain(epsilon)}
    require(same(told, loss), "certificate.json: what one trip and one rider lose does not follow from epsilon")


def _check_plain_noise(release: Release, scale: Fraction) -> None:
    """Check noise that was added to every count by itself."""
    mechanism, measures = release.certificate.body["mechanism"], release.certificate.body["measures"]
    rounding, threshold = mechanism["rounding"], mechanism["threshold"]
    told = {"scale": plain(scale), "law": "floating" if _as_published(mechanism) else rounding}
    require(same(told, measures["noise"]), "certificate.json: the noise does not follow from epsilon")
    fits = type(threshold) is int and 1 <= threshold <= _MOST_THRESHOLD
    require(fits, "certificate.json: the threshold is no whole number above zero, or out of range")
    counts = release.data.column("count").to_numpy()
    require(bool((counts >= threshold).all()), "data: a count is below the threshold")


def _check_features(release: Release, epsilon: Fraction, change: int) -> None:
    """Check which sums were asked, at which share of epsilon, and that their noise follows from it."""
    mechanism, features = release.certificate.body["mechanism"], release.certificate.body["measures"]["features"]
    universe, law = release.universe, "floating" if _as_published(mechanism) else "discrete"
    asked = _asked(mechanism, days=bool(universe.days))
    names = [CELLS, *map(_name, asked)]
    require([item["feature"] for item in features] == names, "certificate.json: other sums than the mechanism asks")
    parts = [exact(item["epsilon"]) for item in features]
    require(min(parts) > 0 and sum(parts) == epsilon, "certificate.json: the parts of epsilon do not add up to it")
    for item, part in zip(features, parts, strict=True):
        told = {**item, "epsilon": plain(part), "scale": plain(change / part), "law": law}
        stated = item.keys() == {"feature", "groups", "epsilon", "scale", "law"}
        wrong = f"certificate.json: the noise on {item['feature']} does not follow from its epsilon"
        require(stated and same(told, item), wrong)
    _check_groups(universe, [universe.cell_columns, *asked], features)
    _check_shares(mechanism, dict(zip(names, (part / epsilon for part in parts), strict=True)))


def _name(columns: _Columns) -> str:
    return " x ".join(columns) or TOTAL


def _ordered(columns: Sequence[str]) -> _Columns:
    known = set(columns) <= set(COLUMNS) and len(set(columns)) == len(columns)
    require(known, "certificate.json: a feature by columns that trips do not have")
    return tuple(name for name in COLUMNS if name in columns)


def _asked(mechanism: Mapping[str, Any], *, days: bool) -> list[_Columns]:
    """Return the columns of each feature but the cells, as the parameters of the mechanism say."""
    given = mechanism["features"]
    if isinstance(given, str):
        require(given[:1] in ("O", "H") and given[1:] in _NAMED, "certificate.json: features of an unknown name")
        asked = [_ordered((*columns, "day") if days and columns else columns) for columns in _NAMED[given[1:]]]
        if given == "H5":  # each level of a tree tells apart all that the one above does
            asked[-1] = _ordered((*asked[-2], "mode"))
    else:
        asked = [_ordered(columns) for columns in given]
    if mechanism.get("structure") == "hierarchical":
        asked = _nested(asked)
    require(len(set(asked)) == len(asked), "certificate.json: a feature is asked twice")
    if mechanism["name"] == _TREE:
        require(bool(asked) and is_nested(asked), "certificate.json: the features of a tree are no tree")
    return _with_margin(mechanism, asked) if mechanism.get("budget_shares") == "margins" else asked


def _with_margin(mechanism: Mapping[str, Any], asked: Sequence[_Columns]) -> list[_Columns]:
    """Put the margin behind the other features, of which there must be one."""
    others = [columns for columns in asked if columns != _MARGIN]
    sound = bool(others) and not _as_published(mechanism) and mechanism["feature_weights"] == "size"
    require(sound, "certificate.json: margins with parameters that do not go with them")
    return [*others, _MARGIN]


def _nested(asked: Sequence[_Columns]) -> list[_Columns]:
    grown: list[_Columns] = []
    for columns in asked:
        grown.append(_ordered(tuple({*(grown[-1] if grown else ()), *columns})))
    return list(dict.fromkeys(grown))


def _check_groups(universe: Universe, asked: Sequence[_Columns], features: Sequence[Mapping[str, Any]]) -> None:
    """Check into how many groups features part the cells, as far as it does not take zones and modes to know."""
    pairs, zones = [], set()
    for columns, item in zip(asked, features, strict=True):
        wrong = f"certificate.json: {item['feature']} has another number of groups"
        slots = _num_slots(universe, columns)
        require(type(item["groups"]) is int and item["groups"] > 0 and slots > 0, wrong)
        require(item["groups"] % slots == 0, wrong)  # every window and day has the same groups
        pairs.append(item["groups"] // slots)
        zones |= _num_zones(len(universe.stops), columns, pairs[-1], wrong)
    require(len(zones) <= 1, "certificate.json: features have another number of groups by zone each")
    for coarser, few in zip(asked, pairs, strict=True):
        for finer, many, item in zip(asked, pairs, features, strict=True):
            refines = _of_pairs(coarser) <= _of_pairs(finer)
            wrong = f"certificate.json: {item['feature']} has another number of groups than what it tells apart"
            require(few <= many or not refines, wrong)


def _num_slots(universe: Universe, columns: _Columns) -> int:
    of_slots = {"day": len(universe.days), "window": len(universe.windows)}
    return math.prod(num for column, num in of_slots.items() if column in columns)


def _of_pairs(columns: _Columns) -> set[str]:
    return known_columns(columns) & set(PAIR_COLUMNS)


def _num_zones(size: int, columns: _Columns, pairs: int, wrong: str) -> set[int]:
    """Check the number of classes of pairs, and return that of zones if it follows."""
    ends = sum(end in columns for end in _MARGIN)
    by_zone = sum(f"{end}_zone" in columns and end not in columns for end in _MARGIN)
    # At least the groups by stops, at most those by pairs.
    require(size**ends <= pairs <= size**2, wrong)
    if "mode" in columns and ends < len(_MARGIN):
        return set()
    zones = math.isqrt(pairs) if by_zone == len(_ZONES) else pairs // size**ends
    require(pairs == size**ends * zones**by_zone and (zones <= size or not by_zone), wrong)
    return {zones} if by_zone else set()


def _check_shares(mechanism: Mapping[str, Any], shares: Mapping[str, Fraction]) -> None:
    """Check that each feature has the share of epsilon that the parameters give it, where they say it outright."""
    wrong = "certificate.json: epsilon is not shared as the mechanism says"
    told, budget = mechanism.get("budget_shares"), mechanism.get("budget")
    if isinstance(told, dict):
        require({name: exact(share) for name, share in told.items()} == shares, wrong)
    elif told == "uniform" or budget == "uniform":
        require(len(set(shares.values())) == 1, wrong)
    elif budget == "geometric":
        cells, *levels = shares.values()
        ratios = [float(finer / coarser) for coarser, finer in zip(levels, [*levels[1:], cells], strict=True)]
        require(all(math.isclose(ratio**3, 2, rel_tol=_SHARE_TOLERANCE) for ratio in ratios), wrong)
    else:
        require(told in ("cells", "margins"), wrong)
        require(list(shares.values()) == _preset_shares(str(told), len(shares) - 1), wrong)


def _preset_shares(preset: str, num: int) -> list[Fraction]:
    """Return the shares of the cells and of so many other features, a margin last."""
    if preset == "cells":
        return [_CELLS_SHARE, *[(1 - _CELLS_SHARE) / num] * num] if num else [Fraction(1)]
    others = num - 1
    return [_MARGINS_CELLS_SHARE, *[(1 - _MARGINS_CELLS_SHARE - _MARGIN_SHARE) / others] * others, _MARGIN_SHARE]


def _check_residual(residual: Any, *, published: bool) -> None:
    number = isinstance(residual, float) and 0 <= residual < math.inf
    near = number and (published or residual <= MOST_RESIDUAL)
    require(near, "certificate.json: the counts are not those nearest to the noisy sums")
