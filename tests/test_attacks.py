# SPDX-License-Identifier: Apache-2.0
"""Linkage attacks against oracles in plain Python: every class, every member, every possible multiset."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from tests.builders import a_policy

import dunnage as dn
from dunnage.auditing import classes as attacks
from dunnage.auditing.classes import ClassesTruth, ClassesView, Correspondence, Knowledge, ValuesLeft, look_up
from dunnage.errors import ParameterError, ReleaseError

MOST = 9
STATISTICS = ("bounds", "mean", "multiset")
NUMBER = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, MOST], "resolution": 1}


def policy(attributes: dict[str, Any], **mechanism: Any) -> dn.Policy:
    mechanism = {"name": "partition", "k": 2, **mechanism}
    return a_policy(mechanism, attributes, dataset="people", protects="person", small="suppress")


def small_table(seed: int, **mechanism: Any) -> tuple[Any, Any, Any]:
    """A few people with a number, a town that is public and a disease that is sensitive."""
    draw = random.Random(seed)
    num = draw.randint(6, 14)
    columns = {
        "number": [draw.randint(0, MOST) for _ in range(num)],
        "town": [draw.choice(["A", "B"]) for _ in range(num)],
        "disease": [draw.choice(["flu", "cold", "none"]) for _ in range(num)],
    }
    roles = {"number": NUMBER, "town": {"role": "public"}, "disease": {"role": "sensitive"}}
    data = dn.load(pa.table(columns), policy(roles, **mechanism))
    return data, *dn.publish(data, ledger=":memory:")


def tables(seeds: int, **mechanism: Any) -> Iterator[tuple[Any, Any, Any]]:
    for seed in range(seeds):
        try:
            yield small_table(seed, **mechanism)
        except dn.Refusal:
            continue


@cache
def possible_values(lower: int, upper: int, size: int, total: int | None, own: bool) -> frozenset[int]:
    """All numbers that a class may hold, by listing every multiset that agrees with what is told of it."""
    found: set[int] = set()
    for values in itertools.combinations_with_replacement(range(lower, upper + 1), size):
        if (total is None or sum(values) == total) and (not own or (values[0], values[-1]) == (lower, upper)):
            found |= set(values)
    return frozenset(found)


class Told(NamedTuple):
    """What a release tells, as plain lists: read once, as it is asked for every person."""

    classes: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    members: list[dict[str, Any]] | None
    town_of: dict[int, str]
    sizes: dict[int, int]

    @classmethod
    def by(cls, release: Any) -> Told:
        rows, classes = release.data.to_pylist(), release.classes.to_pylist()
        members = release.members.to_pylist() if release.members is not None else None
        town_of = {row["class_id"]: row.get("town", "") for row in rows}
        return cls(classes, rows, members, town_of, {line["class_id"]: line["size"] for line in classes})

    def weights(self, number: int, town: str, own: bool = True) -> dict[int, int]:
        """For each class that a person may be in, how many rows or listed values fit."""
        found = {}
        for line in self.classes:
            if self.town_of[line["class_id"]] != town:
                continue
            size = line["size"]
            if self.members is not None:
                weight = sum(m["class_id"] == line["class_id"] and m["number"] == number for m in self.members)
            else:
                total = round(size * line["number_mean"]) if "number_mean" in line else None
                possible = possible_values(int(line["number_lower"]), int(line["number_upper"]), size, total, own)
                weight = size if number in possible else 0
            if weight:
                found[line["class_id"]] = weight
        return found

    def named_row(self, found: dict[int, int]) -> Fraction:
        return max((Fraction(w, self.sizes[c] * sum(found.values())) for c, w in found.items()), default=Fraction(0))

    def guessed_disease(self, found: dict[int, int]) -> Fraction:
        chance: Counter[str] = Counter()
        for line in self.rows:
            c = line["class_id"]
            if c in found:
                chance[line["disease"]] += Fraction(found[c], self.sizes[c] * sum(found.values()))
        return max(chance.values(), default=Fraction(0))


def everyone(sight: ClassesView) -> tuple[list[tuple[int, str]], Knowledge]:
    """Every number in every town, and in one that the release has not."""
    people = [(number, town) for town in ("A", "B", "C") for number in range(MOST + 1)]
    stratum = sight.public.look_up({"town": pa.array([town for _, town in people])}, len(people))
    return people, Knowledge.of_values(sight, stratum, np.array([[number for number, _ in people]], dtype=float))


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("bounds", ["class", "grid"])
def test_record_and_attribute_linkage_and_absence(statistic: str, bounds: str) -> None:
    tried = 0
    for _, release, _ in tables(14, k=2, statistic=statistic, bounds=bounds, alpha="0.3"):
        sight = ClassesView.of(release)
        people, known = everyone(sight)
        linked = attacks.record_linkage(sight, known)
        guessed = attacks.attribute_linkage(sight, known, "disease")
        told = Told.by(release)
        for place, (number, town) in enumerate(people):
            found = told.weights(number, town, own=bounds == "class")
            assert linked.rows[place] == sum(told.sizes[c] for c in found)
            assert linked.probability[place] == pytest.approx(float(told.named_row(found)), rel=1e-12)
            assert guessed[place] == pytest.approx(float(told.guessed_disease(found)), rel=1e-12)
            match = look_up(release, {"number": number}, public={"town": town})
            assert match.certainly_absent == (not found)
            tried += 1
    assert tried > 300


@pytest.mark.parametrize("statistic", STATISTICS)
def test_released_people_are_found_in_their_own_class(statistic: str) -> None:
    for data, release, key in tables(25, k=3, statistic=statistic):
        sight = ClassesView.of(release)
        known = Knowledge.of_records(sight, data)
        own = ClassesTruth.of(sight, data, key).of_record
        fits = {
            pair
            for found in attacks.candidates(sight, known)
            for pair in zip(found.record.tolist(), found.of_class.tolist(), strict=True)
        }
        assert {(r, c) for r, c in enumerate(own.tolist()) if c >= 0} <= fits
        by_value = ClassesTruth.of(sight, data, None)
        times = np.array([sum(record == number for record, _ in fits) for number in range(len(data))])
        assert ((times > 0) == by_value.released).all()
        assert (times[own >= 0] >= 1).all()
        assert (by_value.of_record[(times == 1) & (own >= 0)] == own[(times == 1) & (own >= 0)]).all()


def test_classes_that_their_bounds_and_mean_tell() -> None:
    """Own bounds 0 and 9, three people, mean 4: the third is a 3, and nobody is anything else."""
    for numbers, more in (([0, 3, 9], {"k": 3, "statistic": "mean"}), ([2, 7], {"k": 2})):
        data = dn.load(pa.table({"number": numbers}), policy({"number": NUMBER}, **more))
        release, _ = dn.publish(data, ledger=":memory:")
        seen = {number: look_up(release, {"number": number}) for number in range(MOST + 1)}
        assert [number for number, match in seen.items() if not match.certainly_absent] == numbers
        assert [number for number, match in seen.items() if match.value_shown] == numbers


@pytest.mark.parametrize("statistic", STATISTICS)
def test_values_told_and_values_that_are_known_within_a_share(statistic: str) -> None:
    """A value is told if it is listed, an own bound, or the third of three whose mean is known."""
    for data, release, _ in tables(20, k=3, statistic=statistic):
        sight = ClassesView.of(release)
        told = attacks.shown_values(sight, Knowledge.of_records(sight, data))
        lines, town_of = release.classes.to_pylist(), Told.by(release).town_of
        rows = zip(data.column("number").to_pylist(), data.column("town").to_pylist(), strict=True)
        for place, (number, town) in enumerate(rows):
            near = [c for c in lines if town_of[c["class_id"]] == town]
            inside = [c for c in near if c["number_lower"] <= number <= c["number_upper"]]
            expected = bool(inside) if statistic == "multiset" else False
            for c in inside:
                expected |= number in (c["number_lower"], c["number_upper"])
                expected |= statistic == "mean" and c["size"] == 3
            assert told[place] == expected
    share = 0.3
    for data, release, _ in tables(20, k=2, statistic=statistic, bounds="grid"):
        sight = ClassesView.of(release)
        rough = attacks.record_linkage(sight, Knowledge.of_records(sight, data, share))
        exactly = attacks.record_linkage(sight, Knowledge.of_records(sight, data))
        assert (rough.rows >= exactly.rows).all()
        lists = Told.by(release)
        rows = zip(data.column("number").to_pylist(), data.column("town").to_pylist(), strict=True)
        for place, (number, town) in enumerate(rows if statistic == "multiset" else ()):
            found: Counter[int] = Counter()
            for other in range(MOST + 1):
                if number * (1 - share) <= other <= number * (1 + share):
                    found.update(lists.weights(other, town))
            assert rough.rows[place] == sum(lists.sizes[c] for c in found)
            assert rough.probability[place] == pytest.approx(float(lists.named_row(dict(found))), rel=1e-12)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_several_numbers(statistic: str) -> None:
    """With multisets the tuple must be listed; else each attribute must allow its value."""
    for seed in range(6):
        draw = random.Random(seed)
        columns = {name: [draw.randint(0, MOST) for _ in range(12)] for name in ("number", "other")}
        data = dn.load(pa.table(columns), policy({"number": NUMBER, "other": NUMBER}, k=3, statistic=statistic))
        release, _ = dn.publish(data, ledger=":memory:")
        sight = ClassesView.of(release)
        people = list(itertools.product(range(MOST + 1), repeat=2))
        about = Knowledge.of_values(sight, np.zeros(len(people), dtype=np.int64), np.array(people, dtype=float).T)
        linked = attacks.record_linkage(sight, about)
        told = attacks.shown_values(sight, about)
        lists = Told.by(release)
        members = [(m["class_id"], m["number"], m["other"]) for m in lists.members or []]
        for place, person in enumerate(people):
            found = {}
            for line in lists.classes:
                weight = members.count((line["class_id"], *person))
                if statistic != "multiset":
                    weight = line["size"] if all(map(allows(line), ("number", "other"), person)) else 0
                if weight:
                    found[line["class_id"]] = weight
            assert linked.rows[place] == sum(lists.sizes[c] for c in found)
            assert linked.probability[place] == pytest.approx(float(lists.named_row(found)), rel=1e-12)
            assert told[place] <= (person in set(zip(*columns.values(), strict=True)))


def allows(line: dict[str, Any]) -> Any:
    def one(name: str, value: int) -> bool:
        total = round(line["size"] * line[f"{name}_mean"]) if f"{name}_mean" in line else None
        lower, upper = int(line[f"{name}_lower"]), int(line[f"{name}_upper"])
        return value in possible_values(lower, upper, line["size"], total, True)

    return one


def test_best_window_by_trying_every_guess() -> None:
    draw = random.Random(4)
    for _ in range(40):
        values = [draw.randint(0, 20) / 10 for _ in range(draw.randint(1, 12))]
        groups = [draw.randint(0, 2) for _ in values]
        groups = np.unique(groups, return_inverse=True)[1].tolist()
        reach = draw.choice([0.0, 0.1, 0.3])
        best = 0
        for group in set(groups):
            own = [round(10 * v) for v, g in zip(values, groups, strict=True) if g == group]
            # guesses on a grid of half a step are enough
            best += max(sum(abs(2 * v - guess) <= round(20 * reach) for v in own) for guess in range(-1, 43))
        found = attacks.best_window(np.array(values), np.array(groups), reach)
        assert found == pytest.approx(best / len(values))


def test_homogeneity_and_what_chance_gives() -> None:
    class_id, codes = np.array([0, 0, 1, 1, 2, 2, 2]), np.array([0, 0, 0, 1, 1, 1, 1])
    assert attacks.Occurrences.of(class_id, codes, 3).distinct.tolist() == [1, 2, 1]
    chance = attacks.homogeneous_by_chance(np.bincount(class_id), np.bincount(codes))
    dealt = [
        sum(len(part) for part in (deal[:2], deal[2:4], deal[4:]) if len(set(part)) == 1) / 7
        for deal in itertools.permutations(codes.tolist())
    ]
    assert chance == pytest.approx(sum(dealt) / len(dealt))


def test_correspondence_by_sets() -> None:
    """Two policies on the same people: who shares both classes, and which diseases are left."""
    for seed in range(12):
        try:
            (data, first, first_key), (again, second, second_key) = small_table(seed, k=2), small_table(seed, k=3)
        except dn.Refusal:  # too few people of one town
            continue
        one = ClassesTruth.of(ClassesView.of(first), data, first_key)
        other = ClassesTruth.of(ClassesView.of(second), again, second_key)
        found = Correspondence.of(one, other)
        classes = zip(one.of_record.tolist(), other.of_record.tolist(), strict=True)
        pairs = [(a, b) for a, b in classes if a >= 0 and b >= 0]
        lists = Told.by(first), Told.by(second)
        assert found.shared.tolist() == [pairs.count(pair) for pair in pairs]
        assert found.alone.tolist() == [lists[0].sizes[a] for a, _ in pairs]
        diseases = [
            {c: {row["disease"] for row in told.rows if row["class_id"] == c} for c in told.sizes} for told in lists
        ]
        left = [len(diseases[0][a] & diseases[1][b]) for a, b in pairs]
        assert ValuesLeft.of((first.data, second.data), "disease", found).by_both.tolist() == left


def test_records_are_matched_by_identifier() -> None:
    def people(numbers: list[int], names: str = "") -> Any:
        columns = {"number": numbers, **({"person": list(names)} if names else {})}
        roles = {"number": NUMBER, **({"person": {"role": "identifier"}} if names else {})}
        return dn.load(pa.table(columns), policy(roles))

    one = people([1, 2, 3], "abc")
    first, second = attacks.match_records(one, people([9, 1], "ca"))
    assert (first.tolist(), second.tolist()) == ([0, 2], [1, 0])
    for pair in ((one, people([9, 1], "cc")), (people([9, 1]), people([1, 9]))):
        with pytest.raises(ParameterError):
            attacks.match_records(*pair)
    _, release, _ = small_table(1, k=2)
    for known, public in (({"number": 3}, {}), ({"number": "x"}, {"town": "A"})):
        with pytest.raises(ParameterError):
            look_up(release, known, public=public)
    with pytest.raises(ReleaseError, match="town"):
        Knowledge.of_records(ClassesView.of(release), people([1, 2]))


def test_populations_count_who_fits() -> None:
    _, release, _ = small_table(3, k=2, bounds="grid")
    sight = ClassesView.of(release)
    people, known = everyone(sight)
    counts, told = attacks.populations(sight, known), Told.by(release)
    for line in release.classes.to_pylist():
        expected = sum(line["class_id"] in told.weights(number, town, own=False) for number, town in people)
        assert counts[line["class_id"]] == expected


def test_public_columns_of_every_type() -> None:
    for values in (
        pa.array([1, 2] * 3),
        pa.array([0.5, 1.5] * 3),
        pa.array([True, False] * 3),
        pa.array([1, 2] * 3, pa.date32()),
        pa.array([1, 2] * 3, pa.timestamp("s")),
        pa.array(["1.5", "2.5"] * 3).cast(pa.decimal128(5, 2)),
        pa.array(["x", "y"] * 3).dictionary_encode(),
    ):
        columns = pa.table({"number": [1, 2, 3, 4, 5, 6], "kind": values})
        data = dn.load(columns, policy({"number": NUMBER, "kind": {"role": "public"}}, k=3))
        release, key = dn.publish(data, ledger=":memory:")
        sight = ClassesView.of(release)
        known = Knowledge.of_records(sight, data)
        assert attacks.record_linkage(sight, known).rows.tolist() == [3] * 6, values.type
        by_key, by_value = (ClassesTruth.of(sight, data, own).of_record for own in (key, None))
        assert by_key.tolist() == by_value.tolist(), values.type


def test_pairs_are_the_same_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    data, release, _ = small_table(1, k=2, bounds="grid")
    sight = ClassesView.of(release)
    known = Knowledge.of_records(sight, data, 0.9)
    whole = attacks.record_linkage(sight, known)
    monkeypatch.setattr(attacks, "MAX_PAIRS", 2)
    pieces = list(attacks.candidates(sight, known))
    assert len(pieces) > 1
    assert attacks.record_linkage(sight, known).probability.tolist() == whole.probability.tolist()
    assert attacks.attribute_linkage(sight, known, "disease").max() <= 1
