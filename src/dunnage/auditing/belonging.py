# SPDX-License-Identifier: Apache-2.0
"""Whether data were read as they were published: under the same policy, city and period. Messages name public facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dunnage.auditing.counts import CountsSight, columns_of
from dunnage.dataset import Dataset
from dunnage.documents import canonical
from dunnage.errors import DunnageError, ReleaseError
from dunnage.kinds.common import same
from dunnage.mechanisms.features import Feature
from dunnage.publishing import mechanism_of
from dunnage.release import Release
from dunnage.trips import Universe


def refuse_other_policy(release: Release, data: Dataset) -> None:
    """Refuse data read under a policy whose public facts are not those of the release."""
    stated, read = release.attributes, {item["name"]: item for item in data.schema.describe()}
    differ = [name for name in stated if name not in read or canonical(read[name]) != canonical(stated[name].plain())]
    differ += [name for name in read if name not in stated]
    if differ:
        raise ReleaseError(
            f"the release was made under another policy: {'; '.join(_difference(n, stated, read) for n in differ)}. "
            "Give the policy, and the files that it names, as they were published."
        )


def _difference(name: str, stated: Mapping[str, Any], read: Mapping[str, Any]) -> str:
    """Say in which public facts two descriptions of an attribute differ."""
    if name not in stated or name not in read:
        return f"{name!r} is only in the {'release' if name in stated else 'policy'}"
    first, second = stated[name], read[name]
    facts = [fact for fact in (*first, *(f for f in second if f not in first)) if first.get(fact) != second.get(fact)]
    return f"{name!r} has another {' and '.join(facts)}"


def refuse_other_universe(sight: CountsSight, data: Dataset) -> None:
    """Refuse data read under a policy that counts trips of other types than the release, naming what differs."""
    if data.schema.trip is None:
        raise ReleaseError("the policy does not say what a trip is. Give the policy that the counts were made under.")
    universe = data.schema.universe(data.period)
    differ = _other_facts(sight.universe, universe) or _other_groups(sight, universe)
    if differ:
        raise ReleaseError(
            f"the release was made under another policy, or of another period: it has other {', '.join(differ)}. Give "
            "policy, city and period as they were published."
        )


def _other_facts(stated: Universe, read: Universe) -> list[str]:
    """Name the public facts in which two universes differ."""
    pairs = {"stops": (stated.stops, read.stops), "windows": (stated.windows, read.windows)}
    differ = [name for name, (one, other) in pairs.items() if one != other]
    if stated.time is not None and read.time is not None and not differ:
        first, second = stated.time.describe(), read.time.describe()
        words = {"lower": "windows", "upper": "windows", "window_minutes": "windows", "day": "days"}
        differ += [words.get(fact, fact) for fact in first if first[fact] != second[fact]]
    if (stated.days, stated.num_dates) != (read.days, read.num_dates):
        differ.append("days")
    return list(dict.fromkeys(differ))


def _other_groups(sight: CountsSight, universe: Universe) -> list[str]:
    """Name zones and modes, if by them cells fall into another number of groups than the release states."""
    differ = []
    for item in sight.asked[1:]:
        columns = columns_of(item.name)
        words = {"origin_zone": "zones", "destination_zone": "zones", "mode": "modes"}
        absent = [words[name] for name in columns if name not in universe.columns]
        if not absent and Feature.of(universe, columns).size == item.groups:
            continue
        differ += absent or [words[name] for name in columns if name in words]
    return list(dict.fromkeys(differ))


def other_parameters(release: Release, data: Dataset) -> list[str]:
    """Name the parameters in which the policy that data were read under differs from what was released."""
    stated = dict(release.certificate.body["mechanism"])
    try:
        read = dict(mechanism_of(data.policy).promise(data.schema).mechanism)
    except DunnageError:  # of a policy that could not be published under
        read = dict(data.policy.mechanism)
    differ = [name for name in {**stated, **read} if not same(stated.get(name), read.get(name))]
    return ["mechanism"] if "name" in differ else differ


def policy_notes(sight: CountsSight, data: Dataset) -> list[str]:
    """Say in what the policy that data were read under would release other counts, which does not matter here."""
    measures = sight.release.certificate.body["measures"]
    differ = other_parameters(sight.release, data)
    told, bound = measures.get("contribution") or {}, data.schema.contribution
    if (told.get("max"), told.get("per")) != ((bound.max, bound.per) if bound is not None else (None, None)):
        differ.append("contribution")
    if sight.protects != data.schema.protects:
        differ.append("protects")
    return [f"The policy says otherwise than the release of: {', '.join(differ)}. The release's own are used."][
        : len(differ)
    ]
