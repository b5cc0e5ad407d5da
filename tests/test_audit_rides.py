# SPDX-License-Identifier: Apache-2.0
"""Audits of clustered rides: every figure against counting by hand on small tables."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dunnage as dn
from dunnage.auditing import classes as attacks
from dunnage.auditing import rides
from dunnage.auditing.classes import ClassesTruth, ClassesView, Knowledge, look_up
from dunnage.errors import ReleaseError
from dunnage.mechanisms.classes import EquivalenceClasses, Generalised, Intervals, Nodes, Sets
from dunnage.model.domains import Category, Graph, Numeric, Ordinal, Tree
from dunnage.samples import RideSetting, generate_rides
from dunnage.showing.audit import write_audit

EDGES = [("A", "B"), ("B", "C"), ("C", "D"), ("D", "E"), ("B", "F", 2), ("F", "G")]
STATIONS = Graph(edges=EDGES)
TYPES = Tree(parents={"Adult": "Person", "Not Adult": "Person", "Senior": "Not Adult", "Child": "Not Adult"})
BELOW = {leaf: {leaf} for leaf in TYPES.labels} | {"Not Adult": {"Senior", "Child"}, "Person": set(TYPES.labels)}
START = Numeric(lower=300, upper=500, resolution=1, unit="min")
DOMAINS: dict[str, Any] = {"type": TYPES, "board": STATIONS, "alight": STATIONS, "start": START}
WEIGHTS = {"type": 0.1, "board": 0.4, "alight": 0.3, "start": 0.2}


def table(num: int, seed: int, cards: int = 9) -> dict[str, list[Any]]:
    """Rides with many equal values, so that nothing is told by a single attribute alone."""
    draw = random.Random(seed)
    return {
        "card": [f"PRIVATE-{draw.randrange(cards)}" for _ in range(num)],
        "day": [draw.choice(["Mon", "Sun"]) for _ in range(num)],
        "type": [draw.choice(TYPES.labels) for _ in range(num)],
        "board": [draw.choice(STATIONS.labels) for _ in range(num)],
        "alight": [draw.choice(STATIONS.labels[:4]) for _ in range(num)],
        "start": [draw.choice([300, 359, 360, 361, 400, 420, 475, 500]) for _ in range(num)],
        "ticket": [draw.choice(["single", "day", "year"]) for _ in range(num)],
    }


def load(columns: dict[str, list[Any]], *, person: str | None = "card", **domains: Any) -> dn.Dataset:
    """Make a dataset of quasi-identifiers with a stratum, a sensitive column and cards."""
    roles = {"card": dn.Role.IDENTIFIER, "day": dn.Role.PUBLIC, "ticket": dn.Role.SENSITIVE}
    known = {**DOMAINS, **domains}
    attributes = tuple(
        dn.Attribute(name=name, role=roles.get(name, dn.Role.QUASI_IDENTIFIER), domain=known.get(name))
        for name in columns
    )
    schema = dn.Schema(attributes=attributes, protects="ride", person=person if person in columns else None)
    policy = dn.Policy(dataset="rides", schema=schema, mechanism={"name": "utility-clusters", "k": 2})
    return dn.Dataset.from_table(pa.table(columns), policy)


def random_classes(data: dn.Dataset, seed: int, least: int = 2, lost: int = 2) -> np.ndarray:
    """Put records of a stratum into classes of two or more, at random; some are suppressed."""
    draw = random.Random(seed)
    days = data.column("day").to_pylist()
    of_row = np.full(len(data), -1)
    number = 0
    for day in sorted(set(days)):
        rows = [row for row in range(len(data)) if days[row] == day]
        draw.shuffle(rows)
        rows = rows[min(lost, len(rows) - least) :]
        while rows:
            size = least + draw.randrange(3)
            size = len(rows) if len(rows) < size + least else size
            of_row[rows[:size]] = number
            rows, number = rows[size:], number + 1
    return of_row


def told(data: dn.Dataset, of_row: np.ndarray, attribute: dn.Attribute) -> Generalised:
    """Generalise by the definition: bounds, lowest common node, or the set of all values."""
    values = np.array(data.column(attribute.name).to_pylist(), dtype=object)
    members = [values[of_row == number].tolist() for number in range(of_row.max() + 1)]
    domain, name = attribute.domain, attribute.name
    if isinstance(domain, Numeric):
        lower, upper = (np.array([float(end(own)) for own in members]) for end in (min, max))
        return Intervals(name=name, lower=lower, upper=upper)
    if isinstance(domain, Tree):
        return Nodes(name=name, labels=tuple(domain.generalise(own) for own in members))
    return Sets(name=name, sets=tuple(tuple(sorted(set(own), key=domain.labels.index)) for own in members))


def release_of(data: dn.Dataset, of_row: np.ndarray, weights: dict[str, float] | None = None) -> dn.Publication:
    names = [a.name for a in data.schema.quasi_identifiers]
    weights = weights or dict.fromkeys(names, 1 / len(names))
    classes = EquivalenceClasses(
        of_row=of_row,
        generalised=tuple(told(data, of_row, a) for a in data.schema.quasi_identifiers),
        losses=(0.0,) * len(names),
        importance=tuple(weights.values()),
        figures={"importance": {"factors": weights, "weights": weights}},
    )

    class Given(dn.UtilityClusters):
        def classes(self, dataset, progress=None):
            return classes

    return Given(k=2, symmetrise=True).release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise())


class Small:
    """A small release with all that is needed to count by hand."""

    def __init__(self, num: int, seed: int, **more: Any) -> None:
        self.columns = table(num, seed)
        self.data = load(self.columns)
        self.of_row = random_classes(self.data, seed, **more)
        self.release, self.key = release_of(self.data, self.of_row, WEIGHTS)
        self.sight = ClassesView.of(self.release)
        self.case = ClassesTruth.of(self.sight, self.data, self.key)
        self.classes = self.release.classes.to_pylist()
        days = dict(zip(self.of_row.tolist(), self.columns["day"], strict=True))
        for number, line in enumerate(self.classes):
            line["day"] = days[number]

    @cached_property
    def found(self) -> dn.Audit:
        return dn.audit(self.release, self.data, key=self.key)

    @property
    def released(self) -> list[int]:
        return [row for row, number in enumerate(self.of_row) if number >= 0]

    def value(self, row: int, names: Sequence[str]) -> tuple[Any, ...]:
        return tuple(self.columns[name][row] for name in ("day", *names))

    def fits(self, row: int, line: dict[str, Any], names: Sequence[str]) -> bool:
        """Whether what is known of a record does not rule a class out."""
        if line["day"] != self.columns["day"][row]:
            return False
        for name in names:
            value = self.columns[name][row]
            if name == "start":
                ends = line["start_lower"], line["start_upper"]
                inside = ends[0] <= value <= ends[1] if line["size"] > 2 else value in ends
            else:
                inside = value in (BELOW[line["type"]] if name == "type" else line[name])
            if not inside:
                return False
        return True

    def rows(self, row: int, names: Sequence[str]) -> int:
        return sum(line["size"] for line in self.classes if self.fits(row, line, names))


SMALL = [Small(30, 1), Small(41, 2), Small(12, 3, lost=0), Small(25, 4, least=3)]


@pytest.fixture(params=SMALL, ids=["30", "41", "12", "25"])
def small(request: pytest.FixtureRequest) -> Small:
    return request.param


def test_classes_are_ruled_out_by_hand(small: Small) -> None:
    found = {row: set() for row in range(len(small.data))}
    for part in attacks.candidates(small.sight, small.case.known):
        for record, number in zip(part.record.tolist(), part.of_class.tolist(), strict=True):
            assert number not in found[record]
            found[record].add(number)
    for row, numbers in found.items():
        assert numbers == {n for n, line in enumerate(small.classes) if small.fits(row, line, tuple(DOMAINS))}
    # Somebody may know that a label is one of several neighbours in the list of stations.
    low, high = small.case.known.low.copy(), small.case.known.high.copy()
    low[1] -= 1
    high[1] += 1
    rows = attacks.record_linkage(small.sight, Knowledge(stratum=small.case.known.stratum, low=low, high=high)).rows
    others = tuple(name for name in DOMAINS if name != "board")
    for row in range(len(small.data)):
        place = STATIONS.labels.index(small.columns["board"][row])
        near = set(STATIONS.labels[max(place - 1, 0) : place + 2])
        lines = [line for line in small.classes if near & set(line["board"]) and small.fits(row, line, others)]
        assert rows[row] == sum(line["size"] for line in lines)


def test_values_that_nobody_has_by_hand(small: Small) -> None:
    """Every value of one attribute, and one that no class has, in each stratum and in one that is not released."""
    for axis, (name, domain) in enumerate(DOMAINS.items()):
        values = [*range(298, 503), 360.5] if name == "start" else [*domain.labels, "nowhere"]
        numbers = attacks._numbers(small.sight.attributes[axis].domain, pa.array(values))
        days = {int(small.sight.public.of_class[number]): line["day"] for number, line in enumerate(small.classes)}
        for stratum, day in {**days, -1: "Tue"}.items():
            low = np.full((4, len(values)), -np.inf)
            high = -low
            low[axis] = high[axis] = numbers
            about = Knowledge(stratum=np.full(len(values), stratum), low=low, high=high)
            found = attacks.record_linkage(small.sight, about)
            small.columns["day"].append(day)
            for value, rows, probability in zip(values, found.rows, found.probability, strict=True):
                small.columns[name].append(value)
                expected = small.rows(-1, (name,))
                small.columns[name].pop()
                assert rows == expected
                assert probability == (1 / expected if expected else 0)
            small.columns["day"].pop()


def test_one_ride_is_looked_up() -> None:
    small = SMALL[0]
    row = small.released[0]
    known, public = {name: small.columns[name][row] for name in DOMAINS}, {"day": small.columns["day"][row]}
    match = look_up(small.release, known, public=public)
    assert match.candidates == small.rows(row, tuple(DOMAINS)) > 0
    assert match.probability == 1 / match.candidates
    assert look_up(small.release, {**known, "board": "Z"}, public=public).certainly_absent
    # A class of two equal values counts once.
    release, _ = release_of(load({"start": [310, 310, 300, 320]}), np.array([0, 0, 1, 1]))
    assert [look_up(release, {"start": value}).candidates for value in (310, 300, 320, 315)] == [2, 2, 2, 0]
    release, _ = release_of(load({"board": ["A", "A", "B", "B"]}), np.array([0, 0, 1, 1]))
    for sets in ([[], ["A"]], [["A"], ["A", "Z"]], [None, ["A"]]):
        broken = release.classes.set_column(2, "board", pa.array(sets, pa.list_(pa.string())))
        with pytest.raises(ReleaseError):
            ClassesView.of(replace(release, classes=broken))


def by_pairs(domain: Any, values: Sequence[Any]) -> float:
    """The largest distance of two values over the diameter of the domain."""
    most = max(max(domain.distance(a, b), domain.distance(b, a)) for a in values for b in values)
    return most / domain.diameter


def test_distortion_is_that_of_the_paper(small: Small) -> None:
    found = dn.audit(small.release, external=True)
    lost = 1 - len(small.released) / len(small.data)
    inside = {}
    for name, domain in DOMAINS.items():
        sums = 0.0
        for number, line in enumerate(small.classes):
            own = [small.columns[name][row] for row in np.flatnonzero(small.of_row == number)]
            sums += line["size"] * by_pairs(domain, own)
        inside[name] = sums / len(small.released)
        whole = inside[name] + (1 - inside[name]) * lost
        assert found.finding(f"distortion ({name})").value == pytest.approx(whole)
    for name, weights in (("", WEIGHTS), (", equal weights", dict.fromkeys(WEIGHTS, 0.25))):
        by_classes = sum(weights[key] * value for key, value in inside.items())
        total = found.finding(f"total distortion{name}")
        assert total.value == pytest.approx(by_classes + (1 - by_classes) * lost)
        assert total.details["by_generalisation"] == pytest.approx(by_classes)
    own = sum(WEIGHTS[key] * value for key, value in inside.items())
    assert found.finding("distortion by generalisation").value == pytest.approx(own)
    assert found.finding("distortion by suppression").value == pytest.approx(lost)


def test_width_of_every_kind_of_set() -> None:
    directed = Graph(edges=[("p", "q", 3), ("q", "r"), ("r", "p")], directed=True)
    for domain in (Category(values=["p", "q", "r"]), Ordinal(levels=["p", "q", "r"]), directed, Category(values=["p"])):
        values = [list(own) for num in (1, 2, 3) for own in itertools.product(domain.labels, repeat=num)]
        rows = [value for own in values for value in own * 2]
        of_row = np.repeat(np.arange(len(values)), [2 * len(own) for own in values])
        release, _ = release_of(load({"kind": rows}, kind=domain), of_row)
        widths = rides.class_widths(ClassesView.of(release).attributes[0])
        assert widths.tolist() == pytest.approx([by_pairs(domain, own) if domain.diameter else 0.0 for own in values])


def test_l_and_t_by_hand(small: Small) -> None:
    found = small.found
    for name in ("ticket", "type", "board"):
        column = [small.columns[name][row] for row in small.released]
        whole = Counter(column)
        fewest, entropy, farthest = math.inf, math.inf, 0.0
        for number in range(len(small.classes)):
            own = Counter(small.columns[name][row] for row in small.released if small.of_row[row] == number)
            shares = {value: Fraction(times, own.total()) for value, times in own.items()}
            fewest = min(fewest, len(own))
            entropy = min(entropy, math.exp(-sum(float(s) * math.log(s) for s in shares.values())))
            apart = sum(abs(shares.get(v, 0) - Fraction(times, len(column))) for v, times in whole.items()) / 2
            farthest = max(farthest, float(apart))
        reached = found.finding(f"l reached ({name})")
        assert (reached.value, reached.baseline) == (fewest, len(whole))
        assert reached.details["entropy_l"] == pytest.approx(entropy)
        assert found.finding(f"t reached ({name})").value == pytest.approx(farthest)
        assert reached.private == (name != "ticket")
    persons = [
        len({small.columns["card"][row] for row in np.flatnonzero(small.of_row == n)})
        for n in range(len(small.classes))
    ]
    assert found.finding("persons in a class, fewest").value == min(persons)


def test_ordinals_are_compared_by_their_levels() -> None:
    levels = ["small", "medium", "large"]  # neither this order nor its reverse is that of the alphabet
    columns = {"load": ["small", "medium", "medium", "large"]}
    data = load(columns, load=Ordinal(levels=levels))
    release, key = release_of(data, np.array([0, 0, 1, 1]))
    reached = dn.audit(release, data, key=key).finding("t reached (load)")
    assert reached.details["distance"] == "ordered earth mover's"
    assert reached.value == pytest.approx((0.25 + 0.25) / 2)


def test_a_policy_that_does_not_fit_the_release_is_refused() -> None:
    small = SMALL[0]
    domains = {
        "board": Graph(edges=[*EDGES[:-1], ("F", "G", 9)]),
        "type": Tree(parents={"Adult": "Person", "Senior": "Person", "Child": "Person"}),
        "start": Numeric(lower=0, upper=500, resolution=1, unit="min"),
    }
    for name, domain in domains.items():
        other = load(small.columns, **{name: domain})
        lacking = load({key: values for key, values in small.columns.items() if key != name})
        for data, more in (
            (other, {"key": small.key}),
            (small.data, {"key": small.key, "also": [(small.release, other)]}),
            (lacking, {}),
        ):
            with pytest.raises(ReleaseError, match=f"'{name}'"):
                dn.audit(small.release, data, **more)


def test_every_choice_of_attributes_by_hand(small: Small) -> None:
    found = small.found
    released = np.array(small.released)
    for num in range(1, 5):
        label = f"({num} attribute{'s' * (num > 1)} known)"
        figures: dict[str, list[Any]] = {}
        for names in itertools.combinations(DOMAINS, num):
            times = Counter(small.value(row, names) for row in range(len(small.data)))
            before = [times[small.value(row, names)] for row in small.released]
            after = [small.rows(row, names) for row in small.released]
            attack = rides.attack_by(small.case, names, released)
            assert (attack.before.tolist(), attack.after.tolist()) == (before, after)
            expected = {}
            for side, rows in (("_before", before), ("", after)):
                expected[f"unique{side}"] = pytest.approx(mean(number == 1 for number in rows))
                expected[f"fewest{side}"], expected[f"median{side}"] = min(rows), median(rows)
                for name, value in (("unique", mean(number == 1 for number in rows)), ("fewest", min(rows))):
                    figures.setdefault(name + side, []).append(value)
                figures.setdefault(f"median{side}", []).append(median(rows))
            assert found.finding(f"uniqueness {label}").details[" and ".join(names)] == expected
        for name, key, worst in (
            ("uniqueness", "unique", max),
            ("candidate rows, fewest", "fewest", min),
            ("candidate rows, median", "median", min),
        ):
            item = found.finding(f"{name} {label}")
            assert item.value == pytest.approx(worst(figures[key]))
            assert item.baseline == pytest.approx(worst(figures[f"{key}_before"]))
            assert item.interval == (item.value, item.value)


def test_many_attributes_are_left_out_with_a_note() -> None:
    names = [f"x{number}" for number in range(7)]
    columns = {name: [0, 0, number, number] for number, name in enumerate(names)}
    data = load(columns, **{name: Numeric(lower=0, upper=9) for name in names})
    release, key = release_of(data, np.array([0, 0, 1, 1]))
    found = dn.audit(release, data, key=key)
    # x0 is 0 for all, so that it tells least.
    assert any("x0" in note for note in found.notes)
    assert not any("x0" in names for names in found.finding("uniqueness (2 attributes known)").details)
    assert any("x6" in names for names in found.finding("uniqueness (2 attributes known)").details)
    assert len(found.notes) == 2  # of x0 and of persons; nothing here is a station


def cards_by_hand(small: Small, known: Sequence[int], *, before: bool) -> int:
    """Count the cards with different rides that fit all known ones, by trying every order of their rides."""
    names = tuple(DOMAINS)
    rows = range(len(small.data)) if before else small.released
    num = 0
    for card in set(small.columns["card"]):
        own = [row for row in rows if small.columns["card"][row] == card]
        num += any(
            all(
                small.value(ride, names) == small.value(mine, names)
                if before
                else small.fits(ride, small.classes[small.of_row[mine]], names)
                for ride, mine in zip(known, order, strict=True)
            )
            for order in itertools.permutations(own, len(known))
        )
    return num


def test_risk_of_cards_by_hand(small: Small) -> None:
    found = small.found
    rides = {}
    for row in small.released:
        rides.setdefault(small.columns["card"][row], []).append(row)
    for num in range(1, 4):
        label = f"({num} ride{'s' * (num > 1)} known)"
        able = [own for own in rides.values() if len(own) >= num]
        worst = {
            before: [
                min(cards_by_hand(small, known, before=before) for known in itertools.combinations(own, num))
                for own in able
            ]
            for before in (True, False)
        }
        risk = found.finding(f"person risk {label}")
        assert risk.value == pytest.approx(mean(1 / count for count in worst[False]))
        assert risk.baseline == pytest.approx(mean(1 / count for count in worst[True]))
        assert risk.details["fewest_cards"] == min(worst[False])
        assert risk.details["median_cards"] == median(worst[False])
        assert risk.details["cards"] == len(able)
        unique = found.finding(f"person uniqueness {label}")
        assert unique.value == pytest.approx(mean(count == 1 for count in worst[False]))
        assert unique.baseline == pytest.approx(mean(count == 1 for count in worst[True]))


@given(
    st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=4), st.lists(st.integers(0, 2), min_size=8, max_size=8)
)
@settings(max_examples=300, deadline=None)
def test_cards_need_different_rides(known: list[set[int]], persons: list[int]) -> None:
    expected = 0
    for card in range(3):
        own = [sorted(ride for ride in fits if persons[ride] == card) for fits in known]
        expected += any(len(set(chosen)) == len(known) for chosen in itertools.product(*own))
    records = [np.array(sorted(fits), dtype=np.int64) for fits in known]
    assert rides.cards_that_fit(records, np.array(persons)) == expected


def test_pairs_by_hand(small: Small) -> None:
    counts = {name: Counter() for name in ("spread", "certain", "possible")}
    for line in small.classes:
        pairs = list(itertools.product(line["board"], line["alight"]))
        for pair in pairs:
            counts["spread"][pair] += Fraction(line["size"], len(pairs))
            counts["certain"][pair] += line["size"] if len(pairs) == 1 else 0
            counts["possible"][pair] += line["size"]
    tables = rides.pair_counts(small.sight, 1, 2)
    for name, table_ in tables.items():
        for (first, board), (second, alight) in itertools.product(enumerate(STATIONS.labels), repeat=2):
            assert table_[first, second] == pytest.approx(float(counts[name][board, alight]))
    truth = Counter(zip(small.columns["board"], small.columns["alight"], strict=True))
    kept_truth = Counter((small.columns["board"][row], small.columns["alight"][row]) for row in small.released)
    assert all(counts["certain"][pair] <= times <= counts["possible"][pair] for pair, times in kept_truth.items())
    found = small.found
    top = min(20, len(truth))
    least = sorted(truth.values(), reverse=True)[top - 1]
    by_place = sorted(itertools.product(STATIONS.labels, repeat=2))
    busiest = sorted(by_place, key=lambda pair: -counts["spread"][pair])[:top]
    assert found.finding("top pairs kept").value == pytest.approx(mean(truth[pair] >= least for pair in busiest))
    true_top = sorted(by_place, key=lambda pair: -truth[pair])[:top]
    error = mean(abs(float(counts["spread"][pair]) - truth[pair]) for pair in true_top)
    assert found.finding("top pairs, mean error").value == pytest.approx(error)
    assert found.finding("top pairs, mean error").unit == "rides"


def test_starts_by_hand_and_hourly_boardings_by_counting_minutes(small: Small) -> None:
    item = small.found.finding("mean error (start)")
    mean_start = mean(small.columns["start"])
    rows = [line for line in small.classes for _ in range(line["size"])]
    assert item.value == pytest.approx(abs(mean((r["start_lower"] + r["start_upper"]) / 2 for r in rows) - mean_start))
    assert item.details["by_lower_ends"] == pytest.approx(mean(r["start_lower"] for r in rows))
    assert (item.baseline, item.unit) == (pytest.approx(abs(400 - mean_start)), "min")
    hours = range(5, 9)
    expected = {(station, hour): Fraction() for station in STATIONS.labels for hour in hours}
    for line in small.classes:
        minutes = range(int(line["start_lower"]), int(line["start_upper"]) + 1)
        for station, minute in itertools.product(line["board"], minutes):
            expected[station, minute // 60] += Fraction(line["size"], len(line["board"]) * len(minutes))
    counts = rides.hourly_boardings(small.sight, 1, 3)
    assert counts.shape == (7, 4)
    for (place, station), (column, hour) in itertools.product(enumerate(STATIONS.labels), enumerate(hours)):
        assert counts[place, column] == pytest.approx(float(expected[station, hour]))
    truth = Counter(zip(small.columns["board"], (minute // 60 for minute in small.columns["start"]), strict=True))
    errors = {cell: abs(float(count) - truth[cell]) for cell, count in expected.items()}
    relative, absolute = (small.found.finding(f"query error{x} (board by hour of start)") for x in ("", ", absolute"))
    assert relative.value == pytest.approx(mean(error / max(truth[cell], 1) for cell, error in errors.items()))
    assert absolute.value == pytest.approx(mean(errors.values()))
    even = len(small.data) / len(errors)
    assert absolute.baseline == pytest.approx(mean(abs(even - truth[cell]) for cell in errors))


def test_times_without_a_grid_are_spread_evenly() -> None:
    columns = {"board": ["A", "B"], "alight": ["B", "A"]}
    cases = (([330.0, 390.0], [1, 1, 0]), ([360.0, 360.0], [0, 2, 0]), ([480.0, 480.0], [0, 0, 2]))
    for starts, expected in cases:
        data = load({**columns, "start": starts}, start=Numeric(lower=300, upper=480, unit="min"))
        counts = rides.hourly_boardings(ClassesView.of(release_of(data, np.array([0, 0]))[0]), 0, 2)
        assert counts.sum(axis=0).tolist() == pytest.approx(expected)
        assert counts[0].tolist() == pytest.approx([value / 2 for value in expected])


def test_a_day_has_24_hours() -> None:
    for upper, unit, resolution in ((86400, "s", None), (86400, "s", 1), (24, "h", None)):
        domain = Numeric(lower=0, upper=upper, unit=unit, resolution=resolution)
        data = load({"board": ["A", "B"], "alight": ["B", "A"], "start": [0, upper]}, start=domain)
        release, key = release_of(data, np.array([0, 0]))
        counts = rides.hourly_boardings(ClassesView.of(release), 0, 2)
        assert counts.shape == (7, 24)
        assert counts.sum() == pytest.approx(2)
        assert counts.sum(axis=0) == pytest.approx(np.full(24, 1 / 12), rel=1e-3)
        found = dn.audit(release, data, key=key).finding("query error, absolute (board by hour of start)")
        # Midnight at the end counts in the last hour, in the truth as well.
        truth = {("A", 0): 1, ("B", 23): 1}
        cells = itertools.product(enumerate(STATIONS.labels), range(24))
        expected = mean(abs(counts[place, hour] - truth.get((name, hour), 0)) for (place, name), hour in cells)
        assert found.value == pytest.approx(expected)


def test_busiest_pairs_at_random_are_no_more_than_all() -> None:
    """Three stations and nine pairs, all of them as busy: those of a station with itself count on both sides."""
    network = Graph(edges=[("A", "B"), ("B", "C")])
    pairs = list(itertools.product("ABC", repeat=2))
    columns = {"board": [a for a, _ in pairs], "alight": [b for _, b in pairs]}
    data = load(columns, board=network, alight=network)
    release, key = release_of(data, np.zeros(9, dtype=np.int64))
    found = dn.audit(release, data, key=key)
    kept, error = found.finding("top pairs kept"), found.finding("top pairs, mean error")
    assert (kept.value, kept.baseline) == (1, 1)
    assert (error.value, error.baseline) == pytest.approx((0, 0))
    # Without a unit of time there are no hours.
    columns = {"board": ["A", "B"], "alight": ["B", "A"], "start": [1, 2]}
    data = load(columns, start=Numeric(lower=0, upper=9, unit="km"))
    release, key = release_of(data, np.array([0, 0]))
    found = dn.audit(release, data, key=key)
    assert not any(item.name.startswith("query error") for item in found.findings)
    assert found.notes


def test_intervals_of_medians_and_means_cover_them() -> None:
    """Of 400 samples of 100 about 95 % should hold the truth; fewer than 85 % has a probability below 1e-9."""
    generator = np.random.default_rng(3)
    everyone = generator.integers(0, 10_000, 20_001)
    ends = [rides.median_interval(generator.choice(everyone, 101), complete=False) for _ in range(400)]
    truth = float(np.median(everyone))
    assert mean(low <= truth <= high for low, high in ends) > 0.85
    assert rides.median_interval(everyone, complete=True) == (truth, truth)
    shares = generator.random(50_000) ** 2
    ends = [rides.mean_interval(generator.choice(shares, 100)) for _ in range(400)]
    assert mean(low <= float(shares.mean()) <= high for low, high in ends) > 0.85
    assert rides.mean_interval(np.ones(500))[0] < 1
    chosen = rides.evenly(np.arange(1_000), 7)
    assert (len(set(chosen.tolist())), chosen[0], chosen[-1]) == (7, 0, 999)
    assert rides.evenly(np.arange(5), 5).tolist() == [0, 1, 2, 3, 4]


def test_figures_of_some_records_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SMALL[1]
    whole = small.found
    for name, value in {"MIN_ATTACKED": 10, "MAX_PAIRS": 1, "MAX_CARDS": 4, "MAX_CHOICES": 2}.items():
        monkeypatch.setattr(rides, name, value)
    some = dn.audit(small.release, small.data, key=small.key)
    fewest = some.finding("candidate rows, fewest (2 attributes known)")
    exact = whole.finding("candidate rows, fewest (2 attributes known)")
    assert fewest.interval[0] <= exact.value <= fewest.value
    assert "10 rides" in fewest.sentence
    first, second = (found.finding("uniqueness (2 attributes known)").baseline for found in (some, whole))
    assert first == second
    risk = some.finding("person risk (2 rides known)")
    assert risk.details["attacked"] == 4
    assert risk.interval[1] == 1
    assert not risk.details["every_choice_tried"]
    assert "9 persons" in risk.sentence
    monkeypatch.setattr(rides, "MAX_CARD_ROWS", 1)
    single = dn.audit(small.release, small.data, key=small.key).finding("person risk (1 ride known)")
    assert single.details["attacked"] == 1
    assert single.interval[0] < single.value < single.interval[1]


def check_findings(found: dn.Audit) -> None:
    assert len({item.name for item in found.findings}) == len(found.findings)
    for item in found.findings:
        low, high = item.interval
        assert low <= item.value <= high
        assert item.sentence.endswith(".")
        assert not item.is_share or (low >= 0 and high <= 1 and 0 <= item.baseline <= 1)
    assert "PRIVATE" not in repr(found) + found.summary() + json.dumps(found.to_dict())


def test_what_may_be_handed_out(small: Small) -> None:
    outside, inside = dn.audit(small.release, external=True), small.found
    check_findings(outside)
    check_findings(inside)
    names = {item.name for item in outside.findings}
    assert {"total distortion", "distortion (board)", "l reached (ticket)", "homogeneity (ticket)"} <= names
    assert list(outside.findings) == [item for item in inside.findings if not item.private]
    hidden = ("uniqueness", "candidate", "card", "top pairs", "mean error", "query", "persons", "l reached (type)")
    assert not [name for name in names if name.startswith(hidden)]
    without = dn.audit(small.release, small.data)  # the key
    check_findings(without)
    assert not without.notes or not any(item.name.startswith(("card", "persons")) for item in without.findings)
    assert without.finding("query error (board by hour of start)").value >= 0


def test_generated_rides_from_file_to_page(tmp_path: Path) -> None:
    data_file, policy_file, _ = generate_rides(RideSetting(size=600, stations=60, lines=4), tmp_path / "r.csv", seed=1)
    data = dn.load(data_file, policy_file)
    release, key = dn.publish(data, ledger=":memory:", out=tmp_path / "release")
    found = dn.audit(tmp_path / "release", data)
    check_findings(found)
    measures = release.certificate.rows
    assert found.finding("total distortion").value == pytest.approx(measures.loss.total)
    for name, loss in measures.loss.attributes.items():
        assert found.finding(f"distortion ({name})").value == pytest.approx(loss)
    assert found.finding("persons in a class, fewest").value == measures.persons.smallest >= 10
    for num in range(1, 5):
        label = f"({num} attribute{'s' * (num > 1)} known)"
        assert found.finding(f"uniqueness {label}").value == 0
        assert found.finding(f"candidate rows, fewest {label}").value >= 10
    assert found.finding("person risk (1 ride known)").value <= 0.1
    assert found.finding("person risk (2 rides known)").value > found.finding("person risk (1 ride known)").value
    assert found.finding("top pairs, mean error").value < found.finding("top pairs, mean error").baseline
    assert len(found.at_risk) == 10
    page = (write_audit(found, tmp_path / "audit") / "audit.html").read_text()
    assert "person risk" in page
    assert dn.Audit.read(tmp_path / "audit").findings == found.findings
    assert rides.own_weights(ClassesView.of(release)) == pytest.approx(measures.importance.weights)
    assert key.belongs_to(data)
