# SPDX-License-Identifier: Apache-2.0
"""What of noise and of secret samples follows from the certificate: epsilon, delta, borders, laws, intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from dunnage.arrays import FloatArray
from dunnage.errors import CheckFailed
from dunnage.exact import decimal_text, exact, plain
from dunnage.guarantees import (
    Basis,
    KAnonymity,
    Neighbours,
    PureDP,
    SampledDP,
    WithinCluster,
    WithinPublishedBorders,
)
from dunnage.laws import Cells, cut_text
from dunnage.release import Release
from dunnage.sampling_loss import (
    LARGE_DELTA,
    published_choice_delta,
    sampling_beta,
    sampling_delta,
    sampling_epsilon,
)
from dunnage.verification.reading import floats, generalised, has_classes, k_of, numeric_domain, require, same

_MOST_BORDERS = 10_000


def check_sample(release: Release, folder: Path) -> str:
    """Work out again what a secret sample costs: neither epsilon nor delta may be less than that."""
    body, guarantee = release.certificate.body, release.certificate.guarantee
    if not isinstance(guarantee, SampledDP):
        return ""
    mechanism, beta = body["mechanism"], guarantee.beta
    known = mechanism["name"] == "sampled-lattice" and guarantee.neighbours is Neighbours.ADD_REMOVE
    require(known, "certificate.json: the mechanism keeps another guarantee")
    require(exact(mechanism["beta"]) == beta, "certificate.json: mechanism and guarantee sample at different rates")
    require("holds" not in body or body["holds"] == body["guarantee"], "certificate.json: what holds does not follow")
    choice, published = exact(mechanism["epsilon_choice"]), bool(mechanism["as_published"])
    delta = published_choice_delta(k_of(release), beta, choice) if published else sampling_delta(k_of(release), beta)
    rest = guarantee.epsilon - (2 if published else 1) * choice
    enough = rest >= sampling_epsilon(beta) or (rest > 0 and beta <= sampling_beta(rest))
    require(choice > 0 and enough, "certificate.json: the sample costs more epsilon than is stated")
    require(guarantee.delta >= delta, "certificate.json: delta is larger than stated")
    asked = ((mechanism[name], getattr(guarantee, name)) for name in ("epsilon", "delta"))
    fits = all(most is None or exact(most) >= met for most, met in asked)
    require(fits, "certificate.json: epsilon or delta is more than the mechanism was asked for")
    require((mechanism["epsilon"] is None) == (mechanism["delta"] is None), "certificate.json: half of what was asked")
    same = mechanism["epsilon"] is not None or rest == sampling_epsilon(beta)
    require(same, "certificate.json: epsilon is not that of sample and choice together")
    warned = guarantee.delta < LARGE_DELTA or bool(body.get("warnings"))
    require(warned, "certificate.json: does not warn of its large delta")
    _check_left_out(release)
    return f"epsilon {decimal_text(guarantee.epsilon)} and delta {decimal_text(guarantee.delta)} follow from k and beta"


def _check_left_out(release: Release) -> None:
    """Check that records which a sample left out are told by noise alone if at all, and that nothing is proved then."""
    body, mechanism = release.certificate.body, release.certificate.body["mechanism"]
    left_out, noisy = mechanism["left_out"], release.data.filter(pc.less(release.data.column("class_id"), 0))
    proved = left_out == "drop" or (left_out in ("pool", "noisy") and release.certificate.basis is not Basis.PROVED)
    require(proved and (left_out != "noisy" or "holds" not in body), "certificate.json: states more than is proved")
    require((left_out == "noisy") == release.noisy, "certificate.json: noise on records that are not released")
    require(bool((noisy.column("class_id").to_numpy() == -1).all()), "data: a class_id below -1")
    if left_out != "noisy":
        return
    for name, cells in _cells(release, {}, law="laplace", epsilon=exact(mechanism["left_out_epsilon"])).items():
        lower, upper = floats(noisy, f"{name}_lower"), floats(noisy, f"{name}_upper")
        require(are_around_values(cells, lower, upper), f"data: intervals of {name} do not follow from its noise")


def _cells(release: Release, borders: Mapping[str, Sequence[Any]], *, law: str, epsilon: Fraction) -> dict[str, Cells]:
    """Cut the public domains, whose noise shares epsilon evenly, and check that the certificate describes it so."""
    body, names = release.certificate.body, generalised(release)
    require(sum(map(len, borders.values())) <= _MOST_BORDERS, "certificate.json: too many borders to check")
    confidence = exact(body["mechanism"]["confidence"])
    cells = {}
    for name in names:
        cuts = [exact(border) for border in borders.get(name, ())]
        share = epsilon / len(names)
        cells[name] = Cells.cut(numeric_domain(release, name), cuts, law=law, epsilon=share, confidence=confidence)
    told = {name: of_column.describe() for name, of_column in cells.items()}
    require(same(told, body["measures"]["noise"]), "certificate.json: the noise does not follow from the mechanism")
    return cells


def are_around_values(cells: Cells, lower: FloatArray, upper: FloatArray) -> bool:
    """Return whether each interval is the one around some value of a domain that is not cut."""
    if not (cells.domain.contains(lower) & cells.domain.contains(upper)).all():
        return False
    radius = cells.cells[0].law.radius
    # The value is as far from an end as the radius says, or, with both ends at those of the domain, in the middle.
    places = (cells.steps(lower) + radius, cells.steps(upper) - radius - 1, cells.steps((lower + upper) / 2))
    found = np.zeros(len(lower), dtype=bool)
    for steps in places:
        low, high = cells.interval(cells.domain.grid_values(np.clip(steps, 0, cells.domain.num_steps)))
        found |= (low == lower) & (high == upper)
    return bool(found.all())


def check_noise(release: Release, folder: Path) -> str:
    """Check that intervals follow from noisy values, laws from epsilon, and nothing leaves its public domain."""
    if has_classes(release):
        return ""
    body, names = release.certificate.body, generalised(release)
    measures, mechanism = body["measures"], body["mechanism"]
    require(same(measures.get("records"), len(release)), "certificate.json: another number of records")
    published = mechanism.get("as_published", False) is not False
    kind = _noisy_guarantee(release, published)
    private = kind is WithinPublishedBorders
    figures = {"records", "published_intervals" if published else "noise"} | ({"borders"} if private else set())
    require(measures.keys() == figures, "certificate.json: figures that do not belong to such noise")
    if published:
        told = {name: {"confidence": mechanism["confidence"]} for name in names}
        require(same(told, measures["published_intervals"]), "certificate.json: another confidence")
        for name in names:
            _check_published(release, name)
        return "every noisy value and interval lies in the public domain; by what noise is not stated"
    epsilon = exact(mechanism["epsilon"]) - (_spent_on_borders(mechanism) if private else 0)
    borders = _borders(release, kind) if kind is not PureDP else {}
    for name, cells in _cells(release, borders, law=mechanism["law"], epsilon=epsilon).items():
        _check_noisy_values(release, name, cells)
    return "every noisy value is on its public grid; intervals follow from the laws of the noise, these from epsilon"


def _noisy_guarantee(release: Release, published: bool) -> type:
    """Check that the mechanism keeps the guarantee that is stated, and return its type."""
    body, guarantee = release.certificate.body, release.certificate.guarantee
    mechanism = body["mechanism"]
    kind: type | None = {"noisy-values": PureDP, "noisy-clusters": WithinCluster}.get(mechanism["name"])
    if kind is WithinCluster:
        private = mechanism["quantiles"] is not None
        require(private == (mechanism["borders"] is None), "certificate.json: borders and quantiles, or neither")
        kind = WithinPublishedBorders if private and not published else WithinCluster
    if kind is None or isinstance(guarantee, KAnonymity) or type(guarantee) is not kind:
        raise CheckFailed("certificate.json: the mechanism keeps another guarantee")
    require(guarantee.neighbours is Neighbours.REPLACE_ONE, "certificate.json: noise hides values, not who is there")
    agree = same(mechanism["epsilon"], body["guarantee"]["epsilon"])
    require(agree, "certificate.json: mechanism and guarantee have another epsilon")
    require(not published or "holds" not in body, "certificate.json: says what holds as published, where nothing does")
    return kind


def _spent_on_borders(mechanism: Mapping[str, Any]) -> Fraction:
    epsilon = exact(mechanism["epsilon"])
    spent = exact(mechanism["border_share"]) * epsilon
    parts = {"epsilon_borders": plain(spent), "epsilon_values": plain(epsilon - spent)}
    require(same(parts, {name: mechanism[name] for name in parts}), "certificate.json: epsilon is not shared so")
    return spent


def _borders(release: Release, kind: type) -> dict[str, list[Any]]:
    """Return where the domain of each noisy column is cut: as was given, or as was drawn."""
    body, names, guarantee = release.certificate.body, generalised(release), release.certificate.guarantee
    given = body["mechanism"]["quantiles" if kind is WithinPublishedBorders else "borders"]
    by_name = given if isinstance(given, dict) else dict(zip(names, [given], strict=True))
    drawn: dict[str, list[Any]] = body["measures"]["borders"] if kind is WithinPublishedBorders else by_name
    fits = drawn.keys() == by_name.keys() <= set(names)
    fits = fits and all(0 < len(drawn[name]) <= len(by_name[name]) for name in by_name)
    fits = fits and all(same([plain(exact(border)) for border in cuts], cuts) for cuts in drawn.values())
    if kind is WithinPublishedBorders:
        fits = fits and all(0 < exact(share) < 1 for shares in by_name.values() for share in shares)
    require(fits, "certificate.json: the borders are not those that the mechanism draws")
    if isinstance(guarantee, WithinCluster):
        clusters = "; ".join(cut_text(name, numeric_domain(release, name), drawn.get(name, [])) for name in names)
        require(guarantee.clusters == clusters, "certificate.json: the guarantee names other clusters")
    return drawn


def _check_noisy_values(release: Release, name: str, cells: Cells) -> None:
    value, lower, upper = (floats(release.data, f"{name}{end}") for end in ("", "_lower", "_upper"))
    require(bool(cells.domain.on_grid(value).all()), f"data: a value of {name} is not on the public grid")
    fits = map(np.array_equal, cells.interval(value), (lower, upper))
    require(all(fits), f"data: intervals of {name} do not follow from its noise")


def _check_published(release: Release, name: str) -> None:
    """Check what can be checked where the noise was drawn by ranges that the release does not state."""
    domain = numeric_domain(release, name)
    value, lower, upper = (floats(release.data, f"{name}{end}") for end in ("", "_lower", "_upper"))
    inside = domain.contains(lower) & domain.contains(upper) & (lower <= value) & (value <= upper)
    if not exact(release.certificate.body["mechanism"]["confidence"]):
        inside &= (lower == value) & (value == upper)
    require(bool(inside.all()), f"data: an interval of {name} misses its value or leaves the public domain")
    require(bool(domain.on_grid(value).all()), f"data: a value of {name} is not on the public grid")


# Each says what held, or nothing if a release has nothing of the kind.
