# SPDX-License-Identifier: Apache-2.0
"""Attackers who know part of the truth: some attributes of a record, or some rides of a card. Private.

Each is tried before, on the true table with names taken off, and after, on the release. What fits a record by the
release are all rows of every class that the known values do not rule out.

References
----------
Pellungrini, Pappalardo, Pratesi, Monreale 2018, as in scikit-mobility: the risk of a card is 1 / the number of cards
that fit the rides known of it, at worst over which rides these are. Here rides fit by their generalised values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.auditing import attacks
from dunnage.auditing.finding import CONFIDENCE, Finding, mean_interval, wilson
from dunnage.auditing.inside import Case
from dunnage.auditing.sight import Known
from dunnage.text import number_text, percent

MOST_KNOWN = 4
"""Attributes of a ride, or rides of a card, that an attacker knows at most."""
MOST_COMBINED = 6
"""Attributes of which every choice is tried: of more, those of highest entropy."""
MOST_PAIRS = 20_000_000
"""Pairs of an attacked record and a class: of more records some are attacked, evenly chosen."""
LEAST_ATTACKED = 2_000
MOST_CARDS = 500
"""Cards attacked for each number of rides that are known."""
MOST_CHOICES = 50
"""Choices of rides that are tried for one card."""
MOST_CARD_ROWS = 20_000_000
"""Rows that fit the rides of all attacked cards together: of more, fewer cards are attacked."""


def many(num: int, what: str) -> str:
    """Write a number of things.

    Examples
    --------
    >>> many(1, "ride"), many(2_000, "ride")
    ('1 ride', '2,000 rides')
    """
    return f"{num:,} {what}" + ("" if num == 1 else "s")


# Who knows some attributes of a ride


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What somebody finds who knows some attributes of a record."""

    names: tuple[str, ...]  # The attributes that are known
    before: IntArray  # How many true records have the same values, for each released record
    after: IntArray  # How many released rows may be it, for each record that was attacked


def known_choices(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield every choice of 1 to 4 attributes."""
    for num in range(1, MOST_KNOWN + 1):
        yield from itertools.combinations(names, num)


def telling_names(case: Case) -> list[str]:
    """Return the six attributes whose true values have the highest entropy, in the order of the release."""
    order = np.argsort([-_entropy(values) for values in case.known.low], kind="stable")[:MOST_COMBINED]
    return [case.sight.names[axis] for axis in sorted(order.tolist())]


def _entropy(values: FloatArray) -> float:
    shares = np.unique(values, return_counts=True)[1] / len(values)
    return float(-(shares * np.log2(shares)).sum())


def attack_by(case: Case, names: tuple[str, ...], attacked: IntArray) -> Knowledge:
    """Attack records by some of their attributes; public values are always known."""
    axes = [case.sight.names.index(name) for name in names]
    group = _same_values(case.known, axes)
    before = np.bincount(group)[group[case.released]]
    # Who is known by the same values is found among the same rows.
    _, first, asked = np.unique(group[attacked], return_index=True, return_inverse=True)
    records = attacked[first]
    low = np.full((len(case.sight.told), len(records)), -np.inf)
    high = -low
    low[axes] = high[axes] = case.known.low[axes][:, records]
    found = attacks.record_linkage(case.sight, Known(stratum=case.known.stratum[records], low=low, high=high))
    return Knowledge(names, before, found.rows[asked.reshape(-1)])


def _same_values(known: Known, axes: Sequence[int]) -> IntArray:
    """Give records with the same public values and attributes the same number, from 0 on."""
    group = np.unique(known.stratum, return_inverse=True)[1].reshape(-1)
    for axis in axes:
        code = np.unique(known.low[axis], return_inverse=True)[1].reshape(-1)
        group = np.unique(group * (int(code.max()) + 1) + code, return_inverse=True)[1].reshape(-1)
    return group


def evenly(items: IntArray, most: int) -> IntArray:
    """Return the items, or so many of them, evenly chosen."""
    return items if len(items) <= most else items[np.linspace(0, len(items) - 1, most).astype(np.int64)]


def knowledge_findings(case: Case) -> tuple[list[Finding], list[str]]:
    """Find uniqueness and candidate rows for who knows any 1 to 4 attributes."""
    names = telling_names(case)
    most = max(LEAST_ATTACKED, MOST_PAIRS // len(case.sight.sizes))
    attacked = evenly(np.flatnonzero(case.released), most)
    by_num: dict[int, list[Knowledge]] = {}
    for choice in known_choices(names):
        by_num.setdefault(len(choice), []).append(attack_by(case, choice, attacked))
    complete = len(attacked) == int(case.released.sum())
    findings = [item for num, found in by_num.items() for item in _known_findings(case, num, found, complete)]
    notes = []
    left = [name for name in case.sight.names if name not in names]
    if left:
        notes.append(
            f"Attackers who know some attributes were tried with the {MOST_COMBINED} of highest entropy, not with "
            f"{', '.join(left)}."
        )
    return findings, notes


def _known_findings(case: Case, num: int, found: list[Knowledge], complete: bool) -> list[Finding]:
    """Give the figures for so many known attributes, each for the choice that tells most."""
    record, smallest = case.protects, int(case.sight.sizes.min())
    unique = max(found, key=lambda one: float((one.after == 1).mean()) + float((one.before == 1).mean()) * 1e-9)
    fewest = min(found, key=lambda one: int(one.after.min()))
    middle = min(found, key=lambda one: float(np.median(one.after)))
    before = max(float((one.before == 1).mean()) for one in found)
    share, attacked = float((unique.after == 1).mean()), len(unique.after)
    sampled = "" if complete else f" ({attacked:,} {record}s were attacked, evenly chosen)"
    label, tell = f"({many(num, 'attribute')} known)", "tells" if num == 1 else "tell"
    details = {" and ".join(one.names): _figures(one) for one in found}
    kinds: dict[str, Any] = {"topic": "records", "private": True}
    return [
        Finding(
            name=f"uniqueness {label}",
            value=share,
            # No class has a single row, so that no attribute leaves one.
            interval=(share, share) if complete or smallest > 1 else wilson(share * attacked, attacked),
            baseline=before,
            unit="share",
            sentence=f"Somebody who knows the {many(num, 'attribute')} of a {record} that {tell} most is left with one "
            f"row for {percent(share)} of them; in the true table it is {percent(before)}{sampled}.",
            details=details,
            **kinds,
        ),
        Finding(
            name=f"candidate rows, fewest {label}",
            value=float(fewest.after.min()),
            interval=(float(fewest.after.min() if complete else smallest), float(fewest.after.min())),
            baseline=float(min(one.before.min() for one in found)),
            unit="rows",
            sentence=f"No {record} has fewer than {many(int(fewest.after.min()), 'row')} that may be it, for who "
            f"knows {' and '.join(fewest.names)}{sampled}.",
            **kinds,
        ),
        Finding(
            name=f"candidate rows, median {label}",
            value=float(np.median(middle.after)),
            interval=median_interval(middle.after, complete),
            baseline=min(float(np.median(one.before)) for one in found),
            unit="rows",
            sentence=f"Half of the {record}s have {number_text(float(np.median(middle.after)))} rows or more that may "
            f"be them, for who knows {' and '.join(middle.names)}{sampled}.",
            **kinds,
        ),
    ]


def _figures(one: Knowledge) -> dict[str, float]:
    return {
        "unique_before": float((one.before == 1).mean()),
        "unique": float((one.after == 1).mean()),
        "fewest_before": int(one.before.min()),
        "fewest": int(one.after.min()),
        "median_before": float(np.median(one.before)),
        "median": float(np.median(one.after)),
    }


def median_interval(figures: IntArray, complete: bool) -> tuple[float, float]:
    """Return the median, or the order statistics between which that of all lies at 95 % confidence."""
    value = float(np.median(figures))
    if complete:
        return value, value
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt(len(figures)) / 2
    ranked = np.sort(figures)
    low, high = math.floor(len(ranked) / 2 - reach), math.ceil(len(ranked) / 2 + reach)
    return min(float(ranked[max(low, 0)]), value), max(float(ranked[min(high, len(ranked) - 1)]), value)


# Who knows some rides of a card


@dataclass(frozen=True, eq=False)
class Fitting:
    """For some records the groups of records that fit what is known of each."""

    groups: dict[int, IntArray]  # By record the numbers of the groups
    # members, starts: all records by group, and where each group begins; one entry more than there are groups
    members: IntArray
    starts: IntArray

    @classmethod
    def of(cls, groups: dict[int, IntArray], of_record: IntArray) -> Fitting:
        """Put records in order of their group; those of group -1 are in none."""
        members = np.argsort(of_record, kind="stable")[int((of_record < 0).sum()) :]
        return cls(groups, members, np.searchsorted(of_record[members], np.arange(int(of_record.max()) + 2)))

    def records(self, record: int) -> IntArray:
        """Return the records that fit."""
        parts = [self.members[self.starts[group] : self.starts[group + 1]] for group in self.groups[record].tolist()]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def num_records(self, record: int) -> int:
        """Return how many records fit."""
        groups = self.groups[record]
        return int((self.starts[groups + 1] - self.starts[groups]).sum())


def cards_that_fit(known: Sequence[IntArray], persons: IntArray) -> int:
    """Count the cards that have, for all known rides at once, different rides that fit."""
    common = np.unique(persons[known[0]])
    for records in known[1:]:
        common = np.intersect1d(common, persons[records])
    if len(known) == 1:
        return len(common)
    rides: dict[int, list[set[int]]] = {person: [] for person in common.tolist()}
    for records in known:
        for own in rides.values():
            own.append(set())
        inside = records[np.isin(persons[records], common)]
        for person, record in zip(persons[inside].tolist(), inside.tolist(), strict=True):
            rides[person][-1].add(record)
    return sum(_all_different(own) for own in rides.values())


def _all_different(choices: Sequence[set[int]]) -> bool:
    """Tell whether one can be chosen from each set, all different (Hall)."""
    for num in range(2, len(choices) + 1):
        for some in itertools.combinations(choices, num):
            if len(set().union(*some)) < num:
                return False
    return True


@dataclass(frozen=True, eq=False)
class CardRisk:
    """How many cards fit, at worst over which rides are known, for each attacked card; before and after."""

    before: IntArray
    after: IntArray
    complete: bool  # Whether every choice of rides was tried


def card_risk(cards: Sequence[IntArray], num: int, fits: tuple[Fitting, Fitting], persons: IntArray) -> CardRisk:
    """Attack cards by so many of their released rides; of a card with many rides not every choice is tried."""
    fewest = np.empty((2, len(cards)), dtype=np.int64)
    for place, rides in enumerate(cards):
        choices = list(itertools.islice(itertools.combinations(rides.tolist(), num), MOST_CHOICES))
        for side, fit in enumerate(fits):
            fewest[side, place] = min(cards_that_fit([fit.records(ride) for ride in own], persons) for own in choices)
    complete = all(math.comb(len(rides), num) <= MOST_CHOICES for rides in cards)
    return CardRisk(fewest[0], fewest[1], complete)


def card_findings(case: Case) -> tuple[list[Finding], list[str]]:
    """Find the risk of cards for who knows 1 to 4 of their rides."""
    persons = case.data.persons
    if persons is None:
        return [], ["The policy names no person, so rides of one card were not attacked together. Add [contribution]."]
    if not case.certain:
        return [], []
    rides = _rides_of_cards(case, persons)
    able = {num: [own for own in rides if len(own) >= num] for num in range(1, MOST_KNOWN + 1)}
    chosen = {num: evenly(np.arange(len(cards)), MOST_CARDS) for num, cards in able.items() if cards}
    asked = [able[num][card] for num, cards in chosen.items() for card in cards.tolist()]
    fits = _fits_of(case, np.unique(np.concatenate(asked)))
    findings = []
    for num, cards in chosen.items():
        rows = sum(fits[1].num_records(ride) for card in cards.tolist() for ride in able[num][card].tolist())
        some = evenly(cards, max(1, len(cards) * MOST_CARD_ROWS // max(rows, MOST_CARD_ROWS)))
        risk = card_risk([able[num][card] for card in some.tolist()], num, fits, persons)
        findings += _card_figures(num, risk, len(able[num]))
    return findings, []


def _rides_of_cards(case: Case, persons: IntArray) -> list[IntArray]:
    """Return the released rides of each card that has any."""
    released = np.flatnonzero(case.released)
    order = released[np.argsort(persons[released], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(persons[order])) + 1)


def _fits_of(case: Case, rides: IntArray) -> tuple[Fitting, Fitting]:
    """Return which records fit each ride by its true values, and which by the release."""
    same = _same_values(case.known, range(len(case.sight.told)))
    before = {ride: same[[ride]] for ride in rides.tolist()}
    about = Known(stratum=case.known.stratum[rides], low=case.known.low[:, rides], high=case.known.high[:, rides])
    after = {ride: np.zeros(0, dtype=np.int64) for ride in rides.tolist()}
    for found in attacks.candidates(case.sight, about):
        for part in np.split(np.arange(len(found.record)), found.starts[1:]):
            after[int(rides[found.record[part[0]]])] = found.of_class[part]
    return Fitting.of(before, same), Fitting.of(after, case.of_record)


def _card_figures(num: int, found: CardRisk, able: int) -> list[Finding]:
    attacked, label, tell = len(found.after), f"({many(num, 'ride')} known)", "tells" if num == 1 else "tell"
    risks, before = 1 / found.after, float((1 / found.before).mean())
    mean, unique = float(risks.mean()), float((found.after == 1).mean())
    everyone = attacked == able
    low, high = (mean, mean) if everyone else mean_interval(risks)
    among = "" if everyone else f" ({attacked:,} of {able:,} cards were attacked)"
    linked = "" if num == 1 else ", if rows of one card could be told to belong together: the release does not tell"
    kinds: dict[str, Any] = {"topic": "records", "private": True}
    ends = (unique, unique) if everyone else wilson(unique * attacked, attacked)
    unique_before = float((found.before == 1).mean())
    return [
        Finding(
            name=f"card risk {label}",
            value=mean,
            interval=(low, high if found.complete else 1.0),
            baseline=before,
            unit="probability",
            sentence=f"Somebody who knows the {many(num, 'ride')} of a card that {tell} most names it with "
            f"{percent(mean)} on average{linked}; in the true table it is {percent(before)}{among}.",
            details={
                "cards": able,
                "attacked": attacked,
                "fewest_cards": int(found.after.min()),
                "median_cards": float(np.median(found.after)),
                "median_cards_before": float(np.median(found.before)),
                "every_choice_tried": found.complete,
            },
            **kinds,
        ),
        Finding(
            name=f"card uniqueness {label}",
            value=unique,
            interval=(ends[0], ends[1] if found.complete else 1.0),
            baseline=unique_before,
            unit="share",
            sentence=f"For {percent(unique)} of the cards with {many(num, 'ride')} or more no other card fits"
            f"{linked}; in the true table it is {percent(unique_before)}.",
            **kinds,
        ),
    ]
