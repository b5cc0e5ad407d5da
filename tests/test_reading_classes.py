"""Counts read from classes: against a slow reader with dictionaries, and multisets against the true records."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.test_utility_clusters import BAGS, leaves_below, make_policy, publish, rides
from tests.test_utility_clusters import place as place

import dunnage as dn
from dunnage.auditing.classes import ClassesTruth, ClassesView, Knowledge, record_linkage
from dunnage.errors import ParameterError
from dunnage.kernels.clusters.growth import Constraints, Metric, Rules, join_until_diverse, shortfall, shortfalls

Cells = dict[str, float]


def cells_of(line: dict[str, Any], name: str, width: float) -> Cells:
    """The values that a class may have in one attribute, with their weights."""
    if name == "start":
        low, high = line["start_lower"], line["start_upper"]
        if low == high:
            return {width * min(low // width, 1000 // width - 1): 1.0}
        steps = [width * step for step in range(int(1000 // width))]
        parts = {begin: min(high, begin + width) - max(low, begin) for begin in steps}
        return {begin: part for begin, part in parts.items() if part > 0}
    if name == "type":
        return dict.fromkeys(leaves_below(line["type"]), 1.0)
    return dict(zip(line[name], line.get(f"{name}_counts") or [1.0] * len(line[name]), strict=True))


def slowly(release: dn.Release, names: tuple[str, ...], width: float, steps: int) -> dict[tuple[Any, ...], float]:
    classes = []
    for line in release.classes.to_pylist():
        axes = [cells_of(line, name, width) for name in names]
        weights = {cell: math.prod(a[c] for a, c in zip(axes, cell, strict=True)) for cell in itertools.product(*axes)}
        known = [at for at, name in enumerate(names) if f"{name}_counts" in line]
        classes.append((line["size"], axes, known, weights))
    counts: dict[tuple[Any, ...], float] = defaultdict(float)
    for round_ in range(steps + 1):
        new: dict[tuple[Any, ...], float] = defaultdict(float)
        for size, axes, known, weights in classes:
            own = dict(weights) if not round_ else {cell: counts[cell] for cell in weights}
            for at in known * 2 if round_ else ():
                sums: dict[Any, float] = defaultdict(float)
                for cell, weight in own.items():
                    sums[cell[at]] += weight
                own = {cell: weight * axes[at][cell[at]] / sums[cell[at]] for cell, weight in own.items()}
            whole = sum(own.values())
            for cell, weight in own.items():
                new[cell] += size * weight / whole
        counts = new
    return counts


@pytest.fixture(scope="module")
def releases(place: Path) -> dict[str, dn.Release]:
    columns = rides(60, 3, num_lines=1)
    return {s: publish(columns, make_policy(place, k=4, statistic=s)).release for s in ("bounds", "multiset")}


@pytest.mark.parametrize("statistic", ["bounds", "multiset"])
@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (("board",), 0),
        (("board", "bag"), 0),
        (("board", "bag"), 3),
        (("start", "board"), 2),
        (("type", "load", "bag"), 1),
    ],
)
def test_counts_agree_with_a_slow_reader(
    releases: dict[str, dn.Release], statistic: str, names: tuple[str, ...], steps: int
) -> None:
    release = releases[statistic]
    table = release.spread(*names, width=250, steps=steps).to_pylist()
    found = {tuple(line[name] for name in names): line["count"] for line in table}
    expected = {cell: count for cell, count in slowly(release, names, 250, steps).items() if count > 0}
    assert found.keys() == expected.keys()
    assert all(found[cell] == pytest.approx(count) for cell, count in expected.items())
    assert sum(found.values()) == pytest.approx(len(release))


def test_multisets_are_the_true_counts_of_one_attribute_at_a_time(place: Path, tmp_path: Path) -> None:
    columns = rides(80, 4)
    release, key = publish(columns, make_policy(place, k=4, statistic="multiset", person="card"), tmp_path / "r")
    assert dn.verify(tmp_path / "r").ok
    assert release.members is None  # nothing says which values belong together
    by_class = defaultdict(list)
    for class_id, source in zip(key.table["class_id"].to_pylist(), key.table["source_row"].to_pylist(), strict=True):
        by_class[class_id].append(source - 1)
    for line in release.classes.to_pylist():
        for name in ("board", "bag", "load"):
            counts = Counter(columns[name][row] for row in by_class[line["class_id"]])
            assert dict(zip(line[name], line[f"{name}_counts"], strict=True)) == counts
        assert not {"start_mean", "start_counts", "type_counts"} & line.keys()
    # One attribute alone is known exactly, whatever the reader.
    for steps in (0, 5):
        read = release.spread("board", steps=steps).to_pylist()
        assert {line["board"]: line["count"] for line in read} == pytest.approx(Counter(columns["board"]))
    assert "{" in (tmp_path / "r" / "classes.csv").read_text()
    again = dn.Release.read(tmp_path / "r")
    assert again.classes.equals(release.classes)
    # Without a statistic the certificate is that of earlier versions.
    assert "statistic" not in dn.UtilityClusters(k=4).describe()


def test_forged_counts_are_seen(place: Path, tmp_path: Path) -> None:
    release = publish(rides(60, 5), make_policy(place, k=4, statistic="multiset")).release
    counts = release.classes.column("bag_counts").to_pylist()
    at = next(at for at, own in enumerate(counts) if len(own) > 1)
    forgeries = [
        [counts[at][0] + 1, *counts[at][1:]],
        [0, sum(counts[at]), *[0] * (len(counts[at]) - 2)],
        counts[at][:1],
    ]
    for number, forged in enumerate(forgeries):
        own = [forged if place_ == at else own for place_, own in enumerate(counts)]
        column = pa.array(own, pa.list_(pa.int64()))
        classes = release.classes.set_column(release.classes.column_names.index("bag_counts"), "bag_counts", column)
        of_row = column.take(release.data.column("class_id").combine_chunks())
        data = release.data.set_column(release.data.column_names.index("bag_counts"), "bag_counts", of_row)
        folder = tmp_path / f"{number}"
        folder.mkdir()
        dn.Release(certificate=release.certificate, data=data, classes=classes).write_files(folder)
        assert not dn.verify(folder).ok


def test_attackers_weigh_classes_by_their_counts(place: Path) -> None:
    """With counts, the best guess of a row is by the share of each class that fits, never above 1 in k."""
    columns = rides(80, 6, num_lines=1)
    policy = make_policy(place, k=4, statistic="multiset")
    release, key = publish(columns, policy)
    view = ClassesView.of(release)
    names = [a.name for a in policy.schema if a.name in columns]
    truth = ClassesTruth.of(view, dn.load(pa.table({name: columns[name] for name in names}), policy), key)
    axes = [view.names.index("board"), view.names.index("bag")]
    about = Knowledge.of_axes(truth.known.stratum, axes, truth.known.low[axes], len(view.attributes))
    linkage = record_linkage(view, about)
    for row in range(80):
        chances = []
        for line in release.classes.to_pylist():
            counts = [
                dict(zip(line[n], line[f"{n}_counts"], strict=True)).get(columns[n][row], 0) for n in ("board", "bag")
            ]
            chances.append((math.prod(counts) / line["size"], line["size"]))
        whole = sum(chance for chance, _ in chances)
        assert linkage.probability[row] == pytest.approx(max(chance / whole / size for chance, size in chances))
    assert linkage.probability.max() <= 1 / 4
    found = dn.audit(release, truth.data, key=key)
    most = sum(max(line["bag_counts"]) for line in release.classes.to_pylist()) / 80
    assert found.finding("value linkage, exact (bag)").value == pytest.approx(most)
    assert found.finding("value linkage, exact (bag)").baseline == max(Counter(columns["bag"]).values()) / 80


def test_questions_that_classes_cannot_answer(releases: dict[str, dn.Release]) -> None:
    release = releases["bounds"]
    for names, more in (
        ((), {}),
        (("board", "board"), {}),
        (("board", "bag", "load", "type"), {}),
        (("board",), {"steps": -1}),
        (("start",), {}),
        (("start",), {"width": 0}),
        (("start",), {"width": math.nan}),
        (("purpose",), {}),
        (("nothing",), {}),
    ):
        with pytest.raises(ParameterError):
            release.spread(*names, **more)


def test_a_column_with_the_name_of_counts_is_refused(place: Path) -> None:
    attributes = {
        "bag": {"role": "quasi-identifier", "kind": "category", "domain": BAGS},
        "bag_counts": {"role": "public"},
    }
    for statistic, refused in (("bounds", False), ("multiset", True)):
        mechanism = {"name": "utility-clusters", "k": 2, "statistic": statistic}
        document = {"dataset": "rides", "protects": "ride", "attributes": attributes, "mechanism": mechanism}
        table = pa.table({"bag": BAGS[:1] * 4, "bag_counts": ["a"] * 4})
        try:
            dn.publish(dn.load(table, dn.Policy.from_dict(document)), ledger=dn.Ledger(":memory:"))
        except dn.DunnageError:
            assert refused
        else:
            assert not refused


@pytest.mark.parametrize("t_kind", ["equal", "ordered"])
@pytest.mark.parametrize("t", [0.15, 0.05, 0.01])
def test_a_small_t_is_reached_by_larger_classes(place: Path, tmp_path: Path, t: float, t_kind: str) -> None:
    columns = rides(150, 9, num_lines=1)
    columns["purpose"] = ["a" if draw == "work" else draw for draw in columns["purpose"]]
    ordinal = {"role": "sensitive", "kind": "ordinal", "domain": ["a", "school", "fun"]}
    policy = make_policy(place, k=4, t=t, t_kind=t_kind, person="card")
    document = {**policy.document, "attributes": {**policy.document["attributes"], "purpose": ordinal}}
    policy = dn.Policy.from_dict(document, path=place / "rides.toml")
    release, _ = publish(columns, policy, tmp_path / "release")
    assert dn.verify(tmp_path / "release").ok
    assert len(release) == 150
    whole = Counter(columns["purpose"])
    by_class: dict[int, Counter[str]] = defaultdict(Counter)
    for line in release.data.to_pylist():
        by_class[line["class_id"]][line["purpose"]] += 1
    for own in by_class.values():
        gaps = [own[value] / own.total() - whole[value] / 150 for value in ("a", "school", "fun")]
        ordered = sum(map(abs, itertools.accumulate(gaps))) / 2
        assert (sum(map(abs, gaps)) / 2 if t_kind == "equal" else ordered) <= t + 1e-9


def test_joined_classes_meet_l_and_t_and_only_unions_are_made() -> None:
    rng = np.random.default_rng(5)
    num = 60
    numbers, codes = rng.random((1, num)), rng.integers(0, 4, (1, num)).astype(np.int32)
    table = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    metric = Metric(numbers, codes, (table,), np.array([1.0, 0.2]), np.array([1.0, 0.2]))
    start = np.repeat(np.arange(20), 3)
    for kind, rule in (("equal", {"t": 0.1}), ("ordered", {"t": 0.07}), ("equal", {"l": 3.0})):
        sensitive = rng.integers(0, 4, (1, num)).astype(np.int32)
        constraints = Constraints(sensitive=sensitive, t_kind=kind, **rule)
        joined = join_until_diverse(metric, start, constraints)
        assert len({(a, b) for a, b in zip(start.tolist(), joined.tolist(), strict=True)}) == 20
        rules: Rules = constraints.rules(2, num)
        counts = np.zeros((int(joined.max()) + 1, 4), dtype=np.int64)
        np.add.at(counts, (joined, sensitive[0]), 1)
        assert not shortfalls([counts], rules).any()
        before = np.zeros((20, 4), dtype=np.int64)
        np.add.at(before, (start, sensitive[0]), 1)
        slow = [shortfall.plain(own[None], 0, rules) for own in before]
        assert shortfalls([before], rules).tolist() == pytest.approx(slow)
        # Where a limit forbids every union, classes that miss l or t are left out, unless others may still come.
        tight = Constraints(sensitive=sensitive, t_kind=kind, limits=np.array([0.0, 0.0]), **rule)
        kept = join_until_diverse(metric, start, tight) >= 0
        assert np.array_equal(kept, np.repeat(shortfalls([before], rules) == 0, 3))
        assert np.array_equal(join_until_diverse(metric, start, tight, whole=False), start)
