"""UtilityClusters through releases: classes counted again from the key and the truth by slow, independent code."""

from __future__ import annotations

import copy
import itertools
import math
import random
import tracemalloc
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dunnage as dn
from dunnage.errors import InputError, ParameterError, PolicyError, Refusal
from dunnage.model.measures import closeness, entropy_diversity
from dunnage.publishing import mechanism_of
from dunnage.tables.columns import set_text

PARENTS = {"Senior": "Not Adult", "Child": "Not Adult", "Adult": "Person", "Not Adult": "Person"}
STATIONS = [f"S{number}" for number in range(8)]
EDGES = [*itertools.pairwise(STATIONS), ("S0", "S4")]
BAGS = ["a,b", "c{d}", "e\\f"]
SIZES = ["small", "medium", "large"]

ATTRIBUTES: dict[str, dict[str, Any]] = {
    "card": {"role": "identifier"},
    "type": {"role": "quasi-identifier", "kind": "tree", "parents": PARENTS},
    "board": {"role": "quasi-identifier", "kind": "graph", "edges": "edges.csv"},
    "start": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 1000], "unit": "s"},
    "bag": {"role": "quasi-identifier", "kind": "category", "domain": BAGS},
    "load": {"role": "quasi-identifier", "kind": "ordinal", "domain": SIZES},
    "line": {"role": "public"},
    "purpose": {"role": "sensitive"},
}
PURPOSES = ["work", "school", "fun"]
METHODS = ("growth", "published-greedy", "published-density")
GENERALISED = ("type", "board", "start", "bag", "load")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the network that policies name."""
    folder = tmp_path_factory.mktemp("network")
    (folder / "edges.csv").write_text("from,to\n" + "\n".join(f"{a},{b}" for a, b in EDGES) + "\n")
    return folder


def make_policy(place: Path, *, columns: Any = tuple(ATTRIBUTES), person: str = "", more: Any = None, **mechanism: Any):
    document = {"dataset": "rides", "protects": "ride", "attributes": {name: ATTRIBUTES[name] for name in columns}}
    document |= {"mechanism": {"name": "utility-clusters", **mechanism}, **(more or {})}
    document |= {"contribution": {"person": person}} if person else {}
    return dn.Policy.from_dict(copy.deepcopy(document), path=place / "rides.toml")


def changed(policy: dn.Policy, place: Path, column: str = "", attribute: Any = None, **more: Any) -> dn.Policy:
    """Give an attribute of a policy other facts, or the policy other tables."""
    document = {**copy.deepcopy(dict(policy.document)), **more}
    document["attributes"].setdefault(column or "start", {}).update(attribute or {})
    return dn.Policy.from_dict(document, path=place / "rides.toml")


def measures_of(publication: dn.Publication) -> dict[str, Any]:
    return publication.release.certificate.plain()["measures"]


def rides(num: int, seed: int = 1, *, num_cards: int | None = None, num_lines: int = 2) -> dict[str, list[Any]]:
    draw = random.Random(seed)
    cards = num_cards or max(1, num // 2)
    return {
        "card": [f"card-{draw.randrange(cards)}" for _ in range(num)],
        "type": [draw.choice(["Adult", "Adult", "Senior", "Child"]) for _ in range(num)],
        "board": [draw.choice(STATIONS) for _ in range(num)],
        "start": [float(draw.randrange(1000)) for _ in range(num)],
        "bag": [draw.choice(BAGS) for _ in range(num)],
        "load": [draw.choice(SIZES) for _ in range(num)],
        "line": [draw.choice(["north", "south"][:num_lines]) for _ in range(num)],
        "purpose": [draw.choice(["work", "work", "school", "fun"]) for _ in range(num)],
    }


def publish(columns: dict[str, list[Any]], policy: dn.Policy, out: Path | None = None) -> dn.Publication:
    names = [attribute.name for attribute in policy.schema]
    table = pa.table({name: columns[name] for name in names})
    return dn.publish(dn.load(table, policy), ledger=dn.Ledger(":memory:"), out=out)


def leaves_below(node: str) -> set[str]:
    children = [child for child, parent in PARENTS.items() if parent == node]
    return set().union(*(leaves_below(child) for child in children)) if children else {node}


def hops(first: str, second: str) -> int:
    reached, steps = {first}, 0
    while second not in reached:
        reached |= {b for a, b in EDGES if a in reached} | {a for a, b in EDGES if b in reached}
        steps += 1
    return steps


def width(name: str, values: list[Any]) -> float:
    """Largest pairwise distance over the domain's diameter, pair by pair (Bhati et al. 2021, eqs. 3-9 and 20)."""
    pairs = list(itertools.product(values, repeat=2))
    if name == "start":
        return max(abs(a - b) for a, b in pairs) / 1000
    if name == "board":
        diameter = max(hops(a, b) for a, b in itertools.product(STATIONS, repeat=2))
        return max(hops(a, b) for a, b in pairs) / diameter
    if name == "bag":
        return max(float(a != b) for a, b in pairs)
    if name == "load":
        return max(abs(SIZES.index(a) - SIZES.index(b)) for a, b in pairs) / 2
    nodes = [node for node in [*PARENTS, "Person"] if set(values) <= leaves_below(node)]
    return (min(len(leaves_below(node)) for node in nodes) - 1) / 2


def classes_of(publication: dn.Publication, columns: dict[str, list[Any]]) -> dict[int, list[int]]:
    """Group released rows by every public and generalised column, and give the source rows of each group.

    Checks on the way that classes are these groups, and that what is released is exactly what its records span.
    """
    release, key = publication
    source = dict(zip(key.table["row"].to_pylist(), (key.table["source_row"].to_numpy() - 1).tolist(), strict=True))
    names = [name for name in release.data.column_names if name not in ("row", "class_id", "purpose")]
    groups = defaultdict(list)
    for line in release.data.to_pylist():
        look = tuple(tuple(line[name]) if isinstance(line[name], list) else line[name] for name in names)
        groups[look].append(line)
    assert len(groups) == release.classes.num_rows
    found = {}
    for lines in groups.values():
        (number,) = {line["class_id"] for line in lines}
        found[number] = [source[line["row"]] for line in lines]
        for name in GENERALISED:
            if name in release.attributes:
                check_told(name, lines[0], [columns[name][row] for row in found[number]])
        if "line" in names:
            assert {columns["line"][row] for row in found[number]} == {lines[0]["line"]}
        for line in lines:
            assert "purpose" not in line or line["purpose"] == columns["purpose"][source[line["row"]]]
    return found


def check_told(name: str, line: dict[str, Any], values: list[Any]) -> None:
    if name == "start":
        assert (line["start_lower"], line["start_upper"]) == (min(values), max(values))
    elif name == "type":
        smaller = [n for n in [*PARENTS, "Person"] if set(values) <= leaves_below(n)]
        assert len(leaves_below(line["type"])) == min(len(leaves_below(node)) for node in smaller)
        assert set(values) <= leaves_below(line["type"])
    else:
        order = SIZES.index if name == "load" else str
        assert line[name] == sorted(set(values), key=order)
    if name == "board":
        assert line["board_diameter"] == max(hops(a, b) for a, b in itertools.product(values, repeat=2))


def check(publication: dn.Publication, columns: dict[str, list[Any]], k: int, *, persons: bool) -> None:
    """Count k again, and work out every distortion of the certificate again from the true records."""
    found = classes_of(publication, columns)
    unit = [columns["card"][row] if persons else row for row in range(len(columns["card"]))]
    counts = [len({unit[row] for row in rows}) for rows in found.values()]
    measures = measures_of(publication)
    assert min(counts) >= k
    assert measures["k_reached"] == min(counts)
    assert ("persons" in measures) == persons
    num = len(unit)
    lost = num - sum(map(len, found.values()))
    assert measures["suppressed"]["count"] == lost
    names = [name for name in GENERALISED if name in publication.release.attributes]
    weights = measures["importance"]["weights"]
    total = lost / num
    for name in names:
        by_class = sum(len(rows) * width(name, [columns[name][row] for row in rows]) for rows in found.values())
        general = by_class / (num - lost)
        attribute = general + (1 - general) * lost / num  # eq. 18
        assert measures["loss"]["attributes"][name] == pytest.approx(attribute)
        total += weights[name] * by_class / num
    assert measures["loss"]["total"] == pytest.approx(total)
    of_all, of_lost = measures["distortion"]["generalisation"], measures["distortion"]["suppression"]
    assert total == pytest.approx(of_all + (1 - of_all) * of_lost)  # eq. 14
    assert sum(weights.values()) == pytest.approx(1)


def test_every_method_is_counted_again(place: Path, tmp_path: Path) -> None:
    scalings = ("unit-variance", "maximum")
    for seed, (method, scaling) in enumerate(itertools.product(METHODS, scalings)):
        columns, k = rides(90, seed), (2, 5, 11)[seed % 3]
        publication = publish(columns, make_policy(place, k=k, method=method, scaling=scaling), tmp_path / f"{seed}")
        check(publication, columns, k, persons=False)
        assert dn.verify(tmp_path / f"{seed}").ok


def test_k_counts_persons_where_the_policy_tells_them_apart(place: Path, tmp_path: Path) -> None:
    fewer = 0
    for seed in range(3):
        columns = rides(120, seed, num_cards=20, num_lines=1)
        by_persons = publish(columns, make_policy(place, person="card", k=4), tmp_path / f"release{seed}")
        check(by_persons, columns, 4, persons=True)
        result = dn.verify(tmp_path / f"release{seed}")
        assert result.ok, result.problems
        assert any("persons" in item for item in result.not_checked)
        by_records = classes_of(publish(columns, make_policy(place, k=4)), columns)
        fewer += any(len({columns["card"][row] for row in rows}) < 4 for rows in by_records.values())
    assert fewer == 3  # without a person column such classes do appear: the test could fail
    by_records, by_persons = (dn.promise(make_policy(place, k=4, person=who)).to_dict() for who in ("", "card"))
    assert "one record per protected unit" in by_records["assumptions"]
    assert "one record per protected unit" not in by_persons["assumptions"]
    assert "persons told apart" in by_persons["assumptions"]
    assert "card" not in str(by_persons)


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, list[Any]], int, bool]:
    """Small tables with many ties and duplicates, some columns constant."""
    num = draw(st.integers(4, 24))
    choices = {
        "type": ["Adult", "Senior", "Child"],
        "board": STATIONS[: draw(st.integers(1, 8))],
        "start": [0.0, 10.0, 10.5, 1000.0][: draw(st.integers(1, 4))],
        "bag": BAGS[: draw(st.integers(1, 3))],
        "load": SIZES[: draw(st.integers(1, 3))],
        "line": ["north", "south"][: draw(st.integers(1, 2))],
        "purpose": ["work", "fun"],
        "card": [f"card-{number}" for number in range(draw(st.integers(4, 24)))],
    }
    columns = {name: [draw(st.sampled_from(values)) for _ in range(num)] for name, values in choices.items()}
    return columns, draw(st.integers(2, 6)), draw(st.booleans())


@settings(max_examples=25, deadline=None)
@given(tables())
def test_small_tables_with_ties_are_counted_or_refused_for_a_reason(
    place: Path, case: tuple[dict[str, list[Any]], int, bool]
) -> None:
    columns, k, persons = case
    policy = make_policy(place, person="card" if persons else "", k=k)
    unit = columns["card"] if persons else list(range(len(columns["card"])))
    strata = defaultdict(set)
    for line, who in zip(columns["line"], unit, strict=True):
        strata[line].add(who)
    if min(map(len, strata.values())) < k:
        with pytest.raises(Refusal):
            publish(columns, policy)
        return
    check(publish(columns, policy), columns, k, persons=persons)


def test_k_from_half_the_table_to_all_of_it(place: Path) -> None:
    columns = rides(20, num_lines=1)
    for method, k in itertools.product(METHODS, (10, 11, 20)):
        publication = publish(columns, make_policy(place, k=k, method=method))
        check(publication, columns, k, persons=False)
        assert publication.release.classes.num_rows == (2 if k == 10 else 1)
    columns = rides(19, num_lines=1, num_cards=10)
    num = len(set(columns["card"]))
    publish(columns, make_policy(place, k=num, person="card"))
    for k, person, words in ((20, "", "19 .* 20"), (num + 1, "card", f"{num} .*{num + 1}")):
        with pytest.raises(Refusal, match=words):
            publish(columns, make_policy(place, k=k, person=person))


def test_constant_columns_and_equal_records(place: Path, tmp_path: Path) -> None:
    columns = {name: values[:1] * 30 for name, values in rides(30).items()}
    columns["card"] = [f"card-{number}" for number in range(30)]
    publication = publish(columns, make_policy(place, k=7), tmp_path / "release")
    check(publication, columns, 7, persons=False)
    # Classes that look alike are one: 30 equal records cannot be told apart.
    assert publication.release.classes.num_rows == 1
    assert measures_of(publication)["loss"]["total"] == 0
    assert set(measures_of(publication)["importance"]["weights"].values()) == {0.2}
    assert dn.verify(tmp_path / "release").ok
    columns = rides(40, num_lines=1) | {"board": ["S3"] * 40}
    publication = publish(columns, make_policy(place, k=4))
    check(publication, columns, 4, persons=False)
    assert measures_of(publication)["importance"]["weights"]["board"] == 0


def test_the_order_of_the_input_does_not_matter(place: Path) -> None:
    columns = rides(60, 5)
    order = random.Random(1).sample(range(60), 60)
    shuffled = {name: [values[row] for row in order] for name, values in columns.items()}
    for method in METHODS:
        policy = make_policy(place, k=4, method=method)
        first, second = (publish(given, policy).release for given in (columns, shuffled))
        assert first.classes.equals(second.classes)
        assert first.certificate.plain()["measures"] == second.certificate.plain()["measures"]


def test_small_strata_are_refused_or_suppressed(place: Path, tmp_path: Path) -> None:
    columns = rides(40)
    columns["line"] = ["north"] * 37 + ["south"] * 3
    suppress: dict[str, Any] = {"k": 4, "more": {"small": "suppress"}}
    publication = publish(columns, make_policy(place, **suppress), tmp_path / "release")
    check(publication, columns, 4, persons=False)
    assert measures_of(publication)["suppressed"]["count"] == 3
    assert dn.verify(tmp_path / "release").ok
    for most in (0.075, 0.2):  # what small strata leave of it may be used elsewhere, and no more
        policy = make_policy(place, **suppress, max_suppressed=most, price=0.1)
        assert 3 <= measures_of(publish(columns, policy))["suppressed"]["count"] <= 40 * most
    few = rides(40)  # strata are counted in persons
    few["line"] = ["north"] * 30 + ["south"] * 10
    few["card"] = [f"card-{number}" for number in range(30)] + ["card-0", "card-1"] * 5
    publish(few, make_policy(place, k=4))
    for given_, parameters, words in (
        (columns, {"k": 4}, "line"),
        (columns, {**suppress, "max_suppressed": 0.07}, "max_suppressed"),
        (few, {"k": 4, "person": "card"}, "line"),
    ):
        with pytest.raises(Refusal, match=words):
            publish(given_, make_policy(place, **parameters))


def test_missing_and_unknown_values_follow_their_rule(place: Path) -> None:
    for column, value, rule in (
        ("board", None, "missing"),
        ("card", None, "missing"),
        ("board", "S99", "outside"),
        ("type", "Not Adult", "outside"),
        ("start", 1000.5, "outside"),
    ):
        columns = rides(30, num_lines=1, num_cards=25)
        columns[column][7] = value
        policy = make_policy(place, k=3, person="card")
        with pytest.raises(InputError) as error:
            publish(columns, policy)
        assert [problem.rows for problem in error.value.problems] == [(8,)]
        assert "S99" not in str(error.value)
        publication = publish(columns, changed(policy, place, column, {rule: "leave-out"}))
        assert publication.release.data.num_rows == 29
        assert 8 not in publication.key.table["source_row"].to_pylist()
        found = classes_of(publication, columns)
        assert min(len({columns["card"][row] for row in rows}) for rows in found.values()) >= 3


def test_a_network_in_parts_or_directed_is_refused_or_made_symmetric(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("from,to\nS0,S1\nS2,S3\n")
    with pytest.raises(PolicyError, match=r"'S0' .* 'S2'"):
        make_policy(tmp_path, k=3)
    ring = [*itertools.pairwise(STATIONS), ("S7", "S0")]
    (tmp_path / "edges.csv").write_text("from,to\n" + "\n".join(f"{a},{b}" for a, b in ring) + "\n")
    policy = changed(make_policy(tmp_path, columns=("board", "start"), k=3), tmp_path, "board", {"directed": True})
    with pytest.raises(PolicyError, match="board"):
        dn.promise(policy)
    policy = changed(policy, tmp_path, mechanism={**policy.mechanism, "symmetrise": True})
    release, _ = publish(rides(30), policy, tmp_path / "release")
    assert dn.verify(tmp_path / "release").ok
    for line in release.classes.to_pylist():
        numbers = [STATIONS.index(station) for station in line["board"]]
        expected = max(max((a - b) % 8, (b - a) % 8) if a != b else 0 for a in numbers for b in numbers)
        assert line["board_diameter"] == expected


def test_persons_are_read_and_checked(place: Path) -> None:
    good = make_policy(place, person="card", k=3)
    assert changed(good, place).schema.person == "card"
    for contribution in ({"person": "crd"}, {"person": ""}, {"person": 3}, {"person": "card", "persn": "card"}):
        with pytest.raises(PolicyError):
            changed(good, place, contribution=contribution)
    for role in ("public", "sensitive", "drop"):  # a pseudonym kept across rows links all records of a person
        with pytest.raises(PolicyError):
            changed(good, place, "card", {"role": role})
    few = make_policy(place, columns=("card", "start"), person="card", k=2)
    density = make_policy(place, person="card", k=3, method="published-density")
    for policy in (changed(few, place, mechanism={"name": "partition", "k": 3}), density):  # these count records
        with pytest.raises(PolicyError):
            dn.promise(policy)
    # Rows that travel together must be of one person.
    policy = changed(few, place, "trip", {"role": "identifier"}, together="trip")
    columns = {"card": ["a", "a", "b", "c"], "start": [1.0, 2.0, 3.0, 4.0], "trip": ["1", "1", "2", "3"]}
    release, key = publish(columns, policy)
    assert release.data.num_rows == 3
    assert key.table["card"].to_pylist().count("a") == 2
    with pytest.raises(InputError, match="card"):
        publish({**columns, "card": ["a", "b", "b", "c"]}, policy)


def test_entropy_is_that_of_the_records_in_buckets(place: Path) -> None:
    columns = rides(80, 3, num_lines=1)

    def bits(values: list[Any]) -> float:
        return -sum(times / 80 * math.log2(times / 80) for times in Counter(values).values())

    def factors(**parameters: Any) -> dict[str, float]:
        release, _ = publish(columns, make_policy(place, k=8, **parameters))
        importance = release.certificate.plain()["measures"]["importance"]
        for name, value in importance["factors"].items():
            assert importance["weights"][name] == pytest.approx(value / sum(importance["factors"].values()))
        return importance["factors"]

    raw = factors(buckets={"start": 100})
    for name in ("type", "board", "bag", "load"):
        assert raw[name] == round(bits(columns[name]), 3)
    assert raw["start"] == round(bits([value // 100 for value in columns["start"]]), 3)
    assert factors()["start"] == round(bits([value // (1000 / 96) for value in columns["start"]]), 3)
    normalised = factors(buckets={"start": {"width": 100}}, importance="entropy-normalised")
    assert normalised["board"] == round(bits(columns["board"]) / 3, 3)
    assert normalised["start"] == round(bits([value // 100 for value in columns["start"]]) / math.log2(10), 3)
    quarters = factors(buckets={"start": {"quantiles": 4}})
    assert quarters["start"] == pytest.approx(2, abs=0.01)
    policy = make_policy(place, columns=("type", "board", "start", "load"), k=4, importance={"board": 5, "start": 5})
    importance = measures_of(publish(rides(40), policy))["importance"]
    assert importance["factors"] == {"type": 1.0, "board": 5.0, "start": 5.0, "load": 1.0}
    assert importance["weights"]["board"] == pytest.approx(5 / 12)  # Table 4, S_OD


def test_what_matters_more_is_distorted_less(place: Path) -> None:
    columns = rides(200, 9, num_lines=1)

    def distortion(name: str, **parameters: Any) -> float:
        release, _ = publish(columns, make_policy(place, k=5, **parameters))
        return release.certificate.plain()["measures"]["loss"]["attributes"][name]

    others = dict.fromkeys(GENERALISED, 1)
    for name in ("board", "start", "type"):
        assert distortion(name, importance={**others, name: 5}) < distortion(name, importance=others)


def test_largest_k_for_a_target_distortion(place: Path, tmp_path: Path) -> None:
    columns = rides(150, 4, num_lines=1)

    def total(k: int) -> float:
        return measures_of(publish(columns, make_policy(place, k=k)))["loss"]["total"]

    for number, most in enumerate((0.25, 0.6)):
        publication = publish(columns, make_policy(place, max_distortion=most), tmp_path / f"release{number}")
        measures = measures_of(publication)
        chosen = measures["k_chosen"]
        check(publication, columns, chosen, persons=False)
        assert publication.release.certificate.guarantee.k == 2
        assert measures["loss"]["total"] == pytest.approx(total(chosen))
        assert measures["loss"]["total"] <= most < total(chosen + 1)
        assert dn.verify(tmp_path / f"release{number}").ok
    assert measures_of(publish(columns, make_policy(place, max_distortion=1)))["k_chosen"] == 150
    for parameters, words in (({"max_distortion": 0.01}, "2"), ({"k": 30, "max_distortion": 0.25}, "30")):
        with pytest.raises(Refusal, match=words):
            publish(columns, make_policy(place, **parameters))
    assert dn.UtilityClusters(max_risk=0.15).k == 7
    assert dn.UtilityClusters(k=9, max_risk="1/3").k == 9
    publication = publish(columns, make_policy(place, max_risk=0.15))
    check(publication, columns, 7, persons=False)
    assert publication.release.certificate.guarantee.k == 7


def test_limits_hold_in_the_units_of_each_attribute(place: Path, tmp_path: Path) -> None:
    columns = rides(120, 6, num_lines=1)
    limits = {"board": 2, "start": 400, "type": 2, "load": 1, "bag": 0}
    for number, (name, limit) in enumerate(limits.items()):
        policy = make_policy(place, k=3, method=METHODS[number % 3], limits={name: limit})
        publication = publish(columns, policy, tmp_path / name)
        check(publication, columns, 3, persons=False)
        assert dn.verify(tmp_path / name).ok
        for line in publication.release.classes.to_pylist():
            widest = {
                "board": line["board_diameter"],
                "start": line["start_upper"] - line["start_lower"],
                "type": len(leaves_below(line["type"])),
                "load": SIZES.index(line["load"][-1]) - SIZES.index(line["load"][0]),
                "bag": len(line["bag"]) - 1,
            }
            assert widest[name] <= limit
    for method in METHODS:
        check(publish(columns, make_policy(place, k=3, method=method, limits=limits)), columns, 3, persons=False)
    with pytest.raises(Refusal, match="max_suppressed"):
        publish(columns, make_policy(place, k=20, method="published-density", limits={"start": 300}, max_suppressed=0))
    columns["start"] = [float(number) for number in range(120)]
    with pytest.raises(Refusal):
        publish(columns, make_policy(place, k=3, limits={"start": 0}))


def test_limits_found_by_search(place: Path, tmp_path: Path) -> None:
    """Two rides at the end of the day: a limit suppresses them, and pays, as all limits tried by hand agree."""
    columns = rides(40, 6, num_lines=1)
    columns["start"] = [float(number) for number in range(38)] + [960.0, 999.0]
    policy = {"columns": ("start", "line"), "k": 3}

    def figures(**parameters: Any) -> dict[str, Any]:
        return measures_of(publish(columns, make_policy(place, **policy, **parameters)))

    low, high = ATTRIBUTES["start"]["domain"]
    by_hand = {2.0**-times: figures(limits={"start": (high - low) / 2**times}) for times in range(1, 8)}
    best = min(by_hand, key=lambda share: by_hand[share]["loss"]["total"])
    without = figures()["loss"]["total"]
    publication = publish(columns, make_policy(place, **policy, limits="auto"), tmp_path / "release")
    measures = measures_of(publication)
    assert measures["loss"]["total"] == by_hand[best]["loss"]["total"] < without - 0.01
    assert measures["suppressed"]["count"] == by_hand[best]["suppressed"]["count"] == 2
    assert list(measures["limits_chosen"]) == ["start"]
    assert dn.verify(tmp_path / "release").ok
    check(publication, columns, 3, persons=False)
    # A target gives k and the limits; without limits it allows only a smaller k
    target = (without + measures["loss"]["total"]) / 2
    chosen = [
        measures_of(
            publish(columns, make_policy(place, columns=("start", "line"), max_distortion=target, limits=limits))
        )
        for limits in ("auto", {})
    ]
    assert chosen[0]["k_chosen"] > chosen[1]["k_chosen"]
    assert chosen[0]["loss"]["total"] <= target
    assert chosen[0]["limits_chosen"]
    # Where nothing is gained, no record is lost
    even = {**columns, "start": [25.0 * number for number in range(40)]}
    release, _ = publish(even, make_policy(place, **policy, limits="auto"))
    assert release.certificate.rows.limits_chosen == {}
    assert release.certificate.rows.num_suppressed == 0


def test_statistics_that_must_be_kept(place: Path, tmp_path: Path) -> None:
    columns = rides(60, 2, num_lines=1)
    release, _ = publish(columns, make_policy(place, k=6))
    middles = [(line["start_lower"] + line["start_upper"]) / 2 for line in release.data.to_pylist()]
    for statistic, work_out in (("mean", np.mean), ("median", np.median)):
        change = abs(work_out(middles) - work_out(columns["start"])) / 1000
        assert change > 0
        publish(columns, make_policy(place, k=6, keep={"start": {statistic: change * 1.01}}), tmp_path / statistic)
        result = dn.verify(tmp_path / statistic)
        assert result.ok
        assert any("statistics" in item for item in result.not_checked)
        with pytest.raises(Refusal, match=statistic):
            publish(columns, make_policy(place, k=6, keep={"start": {statistic: change * 0.99}}))


def test_diversity_and_closeness_of_sensitive_columns(place: Path, tmp_path: Path) -> None:
    columns = rides(120, 8, num_lines=1)

    def reached(name: str, **parameters: Any) -> dict[str, Any]:
        publication = publish(columns, make_policy(place, k=3, **parameters), tmp_path / name)
        result = dn.verify(tmp_path / name)
        assert result.ok, (name, result.problems)
        by_class = defaultdict(list)
        for line in publication.release.data.to_pylist():
            by_class[line["class_id"]].append(line["purpose"])
        return {**measures_of(publication)["sensitive"]["purpose"], "by_class": list(by_class.values())}

    assert reached("plain")["l"] == 1
    assert reached("distinct", l=2)["l"] >= 2
    for rows in reached("entropy", l=1.8, l_kind="entropy")["by_class"]:
        shares = [times / len(rows) for times in Counter(rows).values()]
        assert math.exp(-sum(share * math.log(share) for share in shares)) >= 1.8 - 1e-9
    assert reached("equal", t=0.35)["t"] <= 0.35
    # By levels fun is far from work, by letters it is next to school: t must be that of the levels.
    levels = {"attributes": {**ATTRIBUTES, "purpose": {"role": "sensitive", "kind": "ordinal", "domain": PURPOSES}}}
    found = reached("ordered", t=0.3, t_kind="ordered", more=levels)
    whole = Counter(value for values in found["by_class"] for value in values)
    farthest = 0.0
    for values in found["by_class"]:
        gaps = [Counter(values)[p] / len(values) - whole[p] / whole.total() for p in PURPOSES]
        farthest = max(farthest, sum(abs(gap) for gap in itertools.accumulate(gaps)) / 2)
    assert found["distance"] == "ordered earth mover's"
    assert found["t"] == pytest.approx(farthest)
    assert farthest <= 0.3
    with pytest.raises(PolicyError, match="'purpose'"):
        mechanism_of(make_policy(place, k=3, t=0.35, t_kind="ordered"))


def test_refusals_name_what_is_to_blame(place: Path) -> None:
    columns = rides(60, 3, num_lines=1)
    for parameters, words in (
        ({"k": 3, "l": 9}, "'purpose'"),
        ({"k": 3, "t": 0, "limits": {"start": 50}}, r"\bt\b"),
        ({"max_risk": "1/1000000000000"}, "max_risk"),
        ({"k": 30, "limits": {"start": 0}}, "limits"),
    ):
        with pytest.raises(Refusal, match=words):
            publish(columns, make_policy(place, **parameters))


def test_large_domains_cost_by_what_occurs(tmp_path: Path) -> None:
    """Three categories of 12,000 labels took gigabytes for a hundred rows."""
    labels = [f"L{number:05}" for number in range(12_000)]
    attributes = {name: {"role": "quasi-identifier", "kind": "category", "domain": labels} for name in "abc"}
    document = {"dataset": "x", "protects": "x", "attributes": attributes}
    policy = dn.Policy.from_dict({**document, "mechanism": {"name": "utility-clusters", "k": 5}})
    draw = random.Random(1)
    columns = {name: [draw.choice(labels) for _ in range(100)] for name in "abc"}
    tracemalloc.start()
    publish(columns, policy, tmp_path / "release")
    assert dn.verify(tmp_path / "release").ok
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2e8


def test_too_many_labels_name_the_attribute(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dunnage.mechanisms.clusters.MOST_IN_MATRIX", 7)
    with pytest.raises(PolicyError, match="'board'"):
        mechanism_of(make_policy(place, k=3))
    monkeypatch.setattr("dunnage.mechanisms.clusters.MOST_IN_MATRIX", 2)
    with pytest.raises(Refusal, match="'bag'"):
        publish(rides(60, 3), make_policy(place, columns=("bag", "start"), k=3))


def test_measures_of_diversity_by_hand() -> None:
    class_id = np.array([0, 0, 0, 0, 1, 1])
    values = pa.array(["a", "a", "b", "b", "a", "c"])
    assert entropy_diversity(class_id, values) == pytest.approx(2)
    assert closeness(class_id, values, ordered=False) == pytest.approx(1 / 3)
    assert closeness(class_id, values, ordered=True) == pytest.approx((0 + 1 / 3) / 2)


def test_refinement_never_distorts_more(place: Path) -> None:
    columns = rides(150, 3, num_lines=1)
    totals = []
    for seconds in (0, 0.3):
        publication = publish(columns, make_policy(place, person="card", k=4, refine_seconds=seconds))
        check(publication, columns, 4, persons=True)
        totals.append(publication.release.certificate.plain()["measures"]["loss"]["total"])
    assert totals[1] <= totals[0]


def test_sets_in_parquet_and_csv(place: Path, tmp_path: Path) -> None:
    columns = rides(30, num_lines=1)
    publish(columns, make_policy(place, k=10), tmp_path / "release")
    data = pq.read_table(tmp_path / "release" / "data.parquet")
    assert data.schema.field("board").type == pa.list_(pa.string())
    assert data.schema.field("board_diameter").type == pa.float64()
    text = (tmp_path / "release" / "data.csv").read_text()
    assert "{small,medium,large}" in text
    assert r"{a\,b,c\{d\},e\\f}" in text
    again = dn.Release.read(tmp_path / "release")
    assert again.data.equals(data.replace_schema_metadata(None))
    assert again.quantities == ["start"]
    assert dn.pack(again, capacity=2000).objective > 0
    labels = ["a", ",", "a,", "{", "}", "\\", "a\\", "\\,"]
    sets = [list(group) for size in (1, 2, 3) for group in itertools.product(labels, repeat=size)]
    texts = set_text(pa.array(sets)).to_pylist()
    assert len(set(texts)) == len(sets)


def test_bad_parameters_are_refused() -> None:
    assert dn.UtilityClusters(k=3).k == 3
    for parameters in (
        {},
        {"k": 1},
        {"k": 2.5},
        *({"k": 3, name: "magic"} for name in ("method", "scaling", "importance", "symmetrise")),
        *({"k": 3, "importance": value} for value in ({"board": 6}, {"board": 0.5}, {"board": 0}, 7)),
        {"max_distortion": 1.5},
        {"max_risk": 0},
        {"k": 3, "max_suppressed": -1},
        {"k": 3, "price": 0},
        *({"k": 3, "l": value} for value in (0.5, 2.5)),
        *({"k": 3, "t": value} for value in (Decimal("NaN"), 2)),
        {"k": 3, "l": 2, "l_kind": "many"},
        {"k": 3, "t": 0.5, "t_kind": "many"},
        {"k": 3, "refine_seconds": -1},
        *({"k": 3, "limits": value} for value in ({"board": -1}, [1], "some")),
        *({"k": 3, "buckets": {"start": value}} for value in (0, {"quantiles": 1.5}, {"octiles": 8})),
        *({"k": 3, "keep": {"start": value}} for value in ({"mode": 0.1}, 0.1)),
        {"k": 3, "method": "published-density", "l": 2},
    ):
        with pytest.raises(ParameterError):
            dn.UtilityClusters(**parameters)


def test_parameters_that_do_not_fit_the_schema_are_refused(place: Path) -> None:
    for parameters, columns in (
        ({"importance": {"bord": 2}}, GENERALISED),
        ({"limits": {"line": 2}}, GENERALISED),
        ({"buckets": {"board": 2}}, GENERALISED),
        ({"keep": {"board": {"mean": 0.1}}}, GENERALISED),
        ({"l": 2}, GENERALISED),
        ({"t": 0.5, "t_kind": "ordered"}, (*GENERALISED, "purpose")),
        ({}, ("line",)),
    ):
        with pytest.raises(PolicyError):
            dn.promise(make_policy(place, columns=columns, k=3, **parameters))


def test_names_that_collide_with_columns_of_a_release_are_refused() -> None:
    network, labels = dn.Graph(edges=[("a", "b")]), dn.Category(values=["x", "y"])
    board = dn.Attribute(name="board", role=dn.Role.QUASI_IDENTIFIER, domain=network)
    other = dn.Attribute(name="board_diameter", role=dn.Role.PUBLIC)
    with pytest.raises(ParameterError, match="board_diameter"):
        dn.Schema(attributes=(board, other), protects="ride")
    size = dn.Attribute(name="size", role=dn.Role.QUASI_IDENTIFIER, domain=labels)
    with pytest.raises(ParameterError, match="'size'"):
        dn.UtilityClusters(k=2).promise(dn.Schema(attributes=(size,), protects="ride"))


def test_description_makes_the_same_mechanism() -> None:
    given_: dict[str, Any] = {"k": 3, "importance": {"board": 2}, "limits": {"board": 4}, "l": 2}
    given_ |= {"buckets": {"start": {"quantiles": 8}, "end": 900}, "keep": {"start": {"mean": 0.01}}}
    made = dn.UtilityClusters(**given_)
    described = {name: value for name, value in made.describe().items() if name != "name"}
    assert dn.UtilityClusters(**described) == made
    assert hash(dn.UtilityClusters(**described)) == hash(made)


def test_the_example_of_the_paper(tmp_path: Path) -> None:
    """Eight records, k = 2 (Bhati et al. 2021, Tables 2 and 3)."""
    (tmp_path / "edges.csv").write_text("from,to\nA,B\nB,C\nB,D\nC,D\n")
    number = {"role": "quasi-identifier", "kind": "numeric"}
    attributes = {"type": ATTRIBUTES["type"], "board": ATTRIBUTES["board"], "alight": ATTRIBUTES["board"]}
    for name, domain in (("start", [540, 665]), ("time", [280, 520]), ("distance", [2, 4.2])):
        attributes[name] = {**number, "domain": domain}
    mechanism = {"k": 2, "method": "published-density", "importance": {"type": 1}}
    policy = make_policy(tmp_path, more={"attributes": attributes}, **mechanism)
    columns = {
        "type": ["Adult", "Adult", "Child", "Adult", "Senior", "Child", "Adult", "Senior"],
        "board": list("AABBACBA"),
        "alight": list("CCDADDDD"),
        "start": [540.0, 540.0, 545.0, 600.0, 660.0, 555.0, 600.0, 665.0],
        "time": [400.0, 400.0, 320.0, 280.0, 520.0, 340.0, 480.0, 520.0],
        "distance": [3.6, 3.6, 2.2, 2.0, 4.2, 3.8, 2.2, 4.2],
    }
    release, key = publish(columns, policy)
    classes = defaultdict(set)
    for class_id, row in zip(key.table["class_id"].to_pylist(), key.table["source_row"].to_pylist(), strict=True):
        classes[class_id].add(row)
    assert sorted(map(sorted, classes.values())) == [[1, 2], [3, 6], [4, 7], [5, 8]]
    told = {min(classes[line["class_id"]]): line for line in release.classes.to_pylist()}
    assert (told[3]["board"], told[3]["alight"]) == (["B", "C"], ["D"])
    assert (told[4]["alight"], told[4]["alight_diameter"]) == (["A", "D"], 2)
    assert (told[3]["distance_lower"], told[3]["distance_upper"]) == (2.2, 3.8)
    assert [told[number]["type"] for number in (1, 3, 4, 5)] == ["Adult", "Child", "Adult", "Senior"]
