# SPDX-License-Identifier: Apache-2.0
"""NoisyClusters: each form's law enumerated over all neighbours on tiny domains, and where the published one fails.

The enumeration computes laws and choices again, in decimals of 60 digits.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.noisy_help import ALPHA, CONFIDENCES, NO_NOISE, SLACK, dataset, growth, numeric, policy, release_law

import dunnage as dn
from dunnage.errors import CompositionError, ParameterError, Refusal
from dunnage.mechanisms.noisy import (
    MAX_CANDIDATES,
    NoisyClusters,
    border_scores,
    candidate_steps,
    draw_borders,
    exposed_records,
    laplace_radius,
    published_noise,
    rank_clusters,
)
from dunnage.model.guarantees import Basis, WithinCluster, WithinPublishedBorders, compose
from dunnage.model.laws import Cells

FIVE = ("0.05", "0.35", "0.65", "0.95")


def publish(data, **parameters):
    return NoisyClusters(**parameters).release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise())


def shares(*texts):
    return [Fraction(text) for text in texts]


def laplace_row(last, epsilon, truth):
    """Probabilities of seeing 0..last, noise beyond an end added to the end."""
    if last == 0:
        return [Fraction(1)]
    ratio = growth(-Fraction(epsilon) / last)
    row = [ratio ** abs(i - truth) for i in range(last + 1)]
    row[0] /= 1 - ratio
    row[-1] /= 1 - ratio
    return [weight / sum(row) for weight in row]


def cells_of(num_steps, borders):
    starts = [0, *sorted(borders), num_steps + 1]
    return [range(a, b) for a, b in itertools.pairwise(starts)]


def clustered(num_steps, borders, epsilon):
    """Probabilities ``table[truth][seen]`` of one column that is cut at borders."""
    table = [[Fraction(0)] * (num_steps + 1) for _ in range(num_steps + 1)]
    for cell in cells_of(num_steps, borders):
        for truth in cell:
            table[truth][cell.start : cell.stop] = laplace_row(len(cell) - 1, epsilon, truth - cell.start)
    return table


def choice(records, share, candidates, epsilon):
    """Probability of each candidate: exp(-epsilon / 2 |records below it - share of the records|)."""
    weights = []
    for candidate in candidates:
        below = sum(record < candidate for record in records)
        weights.append(growth(-Fraction(epsilon) / 2 * abs(below - Fraction(share) * len(records))))
    return [weight / sum(weights) for weight in weights]


def border_law(records, quantiles, candidates, epsilon):
    """Chances of the published borders, if epsilon is spent on each."""
    laws = [choice(records, share, candidates, epsilon) for share in quantiles]
    law = Counter()
    for picks in itertools.product(range(len(candidates)), repeat=len(quantiles)):
        drawn = tuple(sorted({candidates[pick] for pick in picks}))
        law[drawn] += math.prod((chances[pick] for chances, pick in zip(laws, picks, strict=True)), start=Fraction(1))
    return law


def worst_ratio(table, cell, others=()):
    """The largest ratio of probabilities between values of one record, over all that can be released."""
    laws = [release_law(table, (*others, record)) for record in cell]
    assert len({frozenset(law) for law in laws}) == 1
    return max(max(law[out] for law in laws) / min(law[out] for law in laws) for out in laws[0])


def test_public_borders_keep_epsilon_within_a_cluster_and_waste_none():
    for epsilon in ("0.5", "1", "3"):
        table = clustered(6, [3], epsilon)
        cases = itertools.product(cells_of(6, [3]), [(), (0,), (2,), (5,)])
        worst = max(worst_ratio(table, cell, others) for cell, others in cases)
        assert growth(epsilon) * (1 - SLACK) <= worst <= growth(epsilon) * (1 + SLACK)
        # Between clusters nothing is promised: no release is possible from both.
        assert not set(release_law(table, (2,))) & set(release_law(table, (3,)))
    columns = [clustered(3, [2], Fraction(1)), clustered(2, [], Fraction(1))]  # two columns share epsilon
    pairs = list(itertools.product(range(4), range(3)))
    table = [[columns[0][a][c] * columns[1][b][d] for c, d in pairs] for a, b in pairs]
    for cell in ([0, 1], [2, 3]):
        worst = worst_ratio(table, [i for i, (a, _) in enumerate(pairs) if a in cell])
        assert growth(2) * (1 - SLACK) <= worst <= growth(2) * (1 + SLACK)


def test_releases_with_public_borders_follow_their_cells():
    num = 30_000
    data = dataset({"weight": np.repeat([2.0, 4.0], num)})
    for law in ("laplace", "piecewise"):
        release, key = publish(data, epsilon=3, borders=[3], law=law)
        seen = release.data["weight"].to_numpy()[key.table["row"].to_numpy()].astype(int)
        of_first = key.table["source_row"].to_numpy() <= num
        cells = Cells.of(data.schema["weight"].numeric, release.certificate.plain()["measures"]["noise"]["weight"])
        for truth, mask in ((2, of_first), (4, ~of_first)):
            cell = cells.cells[truth > 2]
            points = np.arange(cell.law.last + 1)
            chances = np.exp(cell.law.log_likelihood(points, truth - cell.first))
            if law == "laplace":
                assert np.allclose(chances, [float(p) for p in laplace_row(cell.law.last, 3, truth - cell.first)])
            counts = np.bincount(seen[mask] - cell.first, minlength=len(points))
            assert counts.sum() == num
            assert stats.chisquare(counts, num * chances / chances.sum()).pvalue > ALPHA, law


@pytest.mark.parametrize(("quantiles", "share"), [(["0.5"], Fraction(2, 3)), (["1/3", "2/3"], Fraction(1, 4))])
def test_private_borders_keep_epsilon_between_values_they_do_not_separate(quantiles, share):
    epsilon, num_steps, quantiles = Fraction(3), 6, shares(*quantiles)
    candidates = candidate_steps(num_steps).tolist()
    assert candidates == [2, 4]
    border_epsilon = epsilon * share / len(quantiles)
    tables = {drawn: clustered(num_steps, drawn, epsilon * (1 - share)) for drawn in [(2,), (4,), (2, 4)]}
    borders, joint = {}, {}
    for records in itertools.combinations_with_replacement(range(num_steps + 1), 2):
        borders[records] = border_law(records, quantiles, candidates, border_epsilon)
        joint[records] = {drawn: release_law(tables[drawn], records) for drawn in borders[records]}
    worst_border = worst = Fraction(0)
    for other, a, b in itertools.product(range(num_steps + 1), repeat=3):
        one, two = tuple(sorted((other, a))), tuple(sorted((other, b)))
        for drawn, chance in borders[one].items():
            ratio = chance / borders[two][drawn]
            worst_border = max(worst_border, ratio)
            if any((a < border) != (b < border) for border in drawn):
                continue
            assert joint[one][drawn].keys() == joint[two][drawn].keys()
            worst = max(worst, *(ratio * p / joint[two][drawn][out] for out, p in joint[one][drawn].items()))
    assert worst_border <= growth(epsilon * share) * (1 + SLACK)
    assert growth(epsilon * (1 - share)) <= worst <= growth(epsilon) * (1 + SLACK)
    assert not set(release_law(tables[4,], (1, 3))) & set(release_law(tables[4,], (1, 4)))  # nothing is promised


def follows(counts, law, num):
    """Whether outcomes counted are those of a law."""
    assert set(counts) <= set(law)
    expected = np.array([float(chance) for chance in law.values()]) * num
    return stats.chisquare([counts[one] for one in law], expected).pvalue > ALPHA


def test_borders_are_drawn_by_the_enumerated_law():
    num, quantiles, noise = 3_000, shares("0.3", "0.8"), dn.Noise()
    for records in ((0, 1, 2, 9, 9), (4, 4, 4, 4, 4), (9, 9, 9, 0, 0)):
        law = border_law(records, quantiles, candidate_steps(9).tolist(), Fraction(1))
        steps = np.array(records)
        drawn = (tuple(draw_borders(steps, quantiles, 9, epsilon=Fraction(1), noise=noise)) for _ in range(num))
        assert follows(Counter(drawn), law, num), records
    num, data = 400, dataset({"weight": [0.0, 1.4, 1.5, 6.0]})  # on the grid: 0, 1, 2, 6
    law = border_law((0, 1, 2, 6), shares("0.6"), [2, 4], Fraction(1, 2))
    releases = (publish(data, epsilon=2, quantiles=["0.6"]).release for _ in range(num))
    counts = Counter(tuple(one.certificate.plain()["measures"]["borders"]["weight"]) for one in releases)
    assert follows(counts, law, num)


@given(st.integers(1, 10**7))
def test_candidates_leave_no_cluster_a_single_point(num_steps):
    candidates = candidate_steps(num_steps).tolist()
    assert len(candidates) <= MAX_CANDIDATES
    assert len(candidates) >= min(MAX_CANDIDATES // 2, (num_steps - 1) // 2)
    for cell in cells_of(num_steps, candidates):
        assert len(cell) >= 2 or num_steps == 0
    assert len({b - a for a, b in itertools.pairwise([0, *candidates])}) <= 1


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=12),
    st.integers(0, 20),
    st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=100),
    st.data(),
)
def test_scores_of_borders_have_sensitivity_one(records, value, share, data):
    place = data.draw(st.integers(0, len(records) - 1))
    neighbour = [*records[:place], value, *records[place + 1 :]]
    candidates = candidate_steps(20)
    pairs = zip(
        border_scores(np.array(records), share, candidates),
        border_scores(np.array(neighbour), share, candidates),
        strict=True,
    )
    assert all(abs(a - b) <= 1 for a, b in pairs)
    below = [sum(record < candidate for record in records) for candidate in candidates.tolist()]
    assert border_scores(np.array(records), share, candidates) == [-abs(b - share * len(records)) for b in below]


def test_private_borders_are_near_their_shares_where_epsilon_allows():
    values = np.random.default_rng(2).uniform(0, 500, 20_000).round(1)
    data = dataset({"weight": values}, {"weight": numeric(0, 500, 0.1)})
    mechanism = NoisyClusters(epsilon=4, quantiles=["0.25", "0.75"])
    release, _ = mechanism.release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise())
    borders = release.certificate.plain()["measures"]["borders"]["weight"]
    assert np.abs((values[:, None] < borders).mean(axis=0) - [0.25, 0.75]).max() < 0.01
    assert mechanism.preview(data).warnings == ()
    few = dataset({"weight": values[:20]}, {"weight": numeric(0, 500, 0.1)})
    assert len(mechanism.preview(few).warnings) == 1
    same = dataset({"weight": values[20:40]}, {"weight": numeric(0, 500, 0.1)})
    assert mechanism.preview(few).to_dict() == mechanism.preview(same).to_dict()


def test_nothing_is_refused_because_of_the_records():
    forms = ({"quantiles": ["0.2", "0.5", "0.9"]}, {"borders": [1, 2, 6]})
    for values, parameters in itertools.product([[3.0], [0.0] * 7, [6.0] * 7, [0.0, 6.0]], forms):
        assert len(publish(dataset({"weight": values}), epsilon=1, **parameters).release) == len(values)


FORMS = (
    {"borders": {"weight": [5, "20.5"]}},
    {"borders": {"weight": [5], "length": ["1.3", "2.2"]}, "law": "piecewise"},
    {"quantiles": {"weight": ["0.2", "0.6"]}},
    {"quantiles": {"weight": ["0.5"], "length": ["0.5"]}, "border_share": "0.5", "law": "piecewise"},
    {"quantiles": {"weight": FIVE}, "as_published": True},
)


def test_intervals_hold_the_truth_as_often_as_stated():
    num = 20_000
    spread = np.random.default_rng(7)
    truth = {"weight": spread.beta(0.8, 1.2, num) * 50, "length": spread.integers(0, 11, num) * 0.3 + 1}
    truth["weight"][: num // 8] = spread.choice([4.94, 4.95, 4.96, 5, 20.45, 20.5, 25], num // 8)
    data = dataset(truth, {"weight": numeric(0, 50, 0.1), "length": numeric(1, 4, 0.3)})
    for form, confidence in itertools.product(FORMS, CONFIDENCES):
        release, key = publish(data, epsilon=6, confidence=confidence, **form)
        source, row = key.table["source_row"].to_numpy() - 1, key.table["row"].to_numpy()
        for name, values in truth.items():
            told, lower, upper = (release.data[f"{name}{end}"].to_numpy()[row] for end in ("", "_lower", "_upper"))
            grid = data.schema[name].numeric
            assert grid.on_grid(told).all()
            assert (grid.contains(lower) & grid.contains(upper)).all()
            assert ((lower <= told) & (told <= upper)).all()
            held = int(((lower <= values[source]) & (values[source] <= upper)).sum())
            assert stats.binomtest(held, num, float(confidence), alternative="less").pvalue > ALPHA, form


def test_released_values_agree_with_the_stated_cells():
    values = np.random.default_rng(5).uniform(0, 6, 300)
    data = dataset({"weight": values})
    for parameters in ({"borders": [2, 5]}, {"quantiles": ["0.3", "0.7"]}):
        release, key = publish(data, epsilon=4, **parameters)
        measures = release.certificate.plain()["measures"]
        cells = Cells.of(data.schema["weight"].numeric, measures["noise"]["weight"])
        told = release.data["weight"].to_numpy()
        lower, upper = cells.interval(told)
        assert lower.tolist() == release.data["weight_lower"].to_pylist()
        assert upper.tolist() == release.data["weight_upper"].to_pylist()
        same = cells.index(cells.steps(values[key.table["source_row"].to_numpy() - 1]))
        assert (cells.index(cells.steps(told[key.table["row"].to_numpy()])) == same).all()
        assert measures["records"] == 300
        stated = measures.get("borders", {"weight": [2, 5]})["weight"]
        assert [item["lower"] for item in measures["noise"]["weight"][1:]] == stated


def test_how_epsilon_is_split():
    attributes = {"weight": numeric(), "length": numeric(), "width": numeric()}
    data = dataset({name: [1.0, 2.0] for name in attributes}, attributes)
    release, _ = publish(data, epsilon=4, quantiles={"weight": ["0.5"], "width": ["0.2", "0.8"]}, border_share="1/4")
    body = release.certificate.plain()
    assert body["mechanism"]["epsilon_borders"] == 1
    assert body["mechanism"]["epsilon_values"] == 3
    assert {cell["epsilon"] for cells in body["measures"]["noise"].values() for cell in cells} == {1}
    assert set(body["measures"]["borders"]) == {"weight", "width"}
    assert len(body["measures"]["noise"]["length"]) == 1
    told = NoisyClusters(epsilon=4, quantiles={"weight": ["0.5"], "width": ["0.2", "0.8"]}).preview(data)
    assert all("1/3" in line for line in told.lines)


def test_the_published_form_keeps_no_epsilon():
    """Neighbours within one cluster, and no release that both can lead to: the ratio is infinite."""
    noise = dn.Noise()
    # A cluster whose values are equal is printed as it is; one record further, it is not.
    noisy, radius = published_noise(np.array([2, 2]), [], epsilon=Fraction(1), confidence=Fraction(1, 2), noise=noise)
    assert (noisy.tolist(), radius.tolist()) == ([2, 2], [0, 0])
    other, _ = published_noise(np.array([2, 3] * 500), [], epsilon=Fraction(1), confidence=Fraction(1, 2), noise=noise)
    assert len(set(other.tolist())) > 2
    # Even where no range is 0, the widths of intervals tell the two datasets apart for sure.
    widths = []
    for last in (100.0, 110.0):
        data = dataset({"weight": [90.0, 95.0, last]}, {"weight": numeric(0, 200)})
        found = set()
        for _ in range(20):
            release, _ = publish(data, epsilon=20, quantiles=["0.1"], as_published=True, confidence="0.5")
            lower, upper = (release.data[f"weight_{side}"].to_numpy() for side in ("lower", "upper"))
            found |= set((upper - lower).tolist())
        widths.append(found)
    assert widths == [{1.0}, {3.0}]


def test_published_noise_is_scaled_by_the_range_of_each_cluster():
    for epsilon, confidence, span in itertools.product((Fraction(1, 2), Fraction(3)), CONFIDENCES, (1, 7, 400)):
        scale, sure = span / epsilon, Fraction(confidence)
        radius, ratio = laplace_radius(scale, sure), growth(-1 / scale)
        held = [1 - 2 * ratio ** (reach + 1) / (1 + ratio) for reach in (radius, radius - 1)]
        assert held[0] >= sure
        assert radius == 0 or held[1] < sure
        # The paper's continuous radius, eq. 23
        assert abs(radius - -float(scale) * math.log(1 - float(sure))) <= 1
    num = 40_000
    steps = np.concatenate([np.repeat([0, 10], num // 4), np.repeat([100, 140], num // 4)])
    steps = np.random.default_rng(1).permutation(steps)
    given_ = {"epsilon": Fraction(2), "confidence": Fraction(9, 10), "noise": dn.Noise()}
    noisy, radius = published_noise(steps, shares("0.5"), **given_)
    for low, span in ((0, 10), (100, 40)):
        mask = (steps >= low) & (steps < low + 50)
        scale = Fraction(span, 2)
        assert set(radius[mask].tolist()) == {laplace_radius(scale, Fraction(9, 10))}
        drawn, ratio = (noisy - steps)[mask], float(growth(-1 / scale))
        edges = np.arange(-3 * span, 3 * span + 1)
        chances = (1 - ratio) / (1 + ratio) * ratio ** np.abs(edges)
        counts = np.array([(drawn == edge).sum() for edge in edges])
        kept = chances * len(drawn) > 5
        expected = np.append(chances[kept], 1 - chances[kept].sum()) * len(drawn)
        assert stats.chisquare(np.append(counts[kept], len(drawn) - counts[kept].sum()), expected).pvalue > ALPHA


def test_ranks_round_to_the_nearest():
    assert rank_clusters(25, shares(*FIVE)) == [slice(0, 1), slice(1, 9), slice(9, 16), slice(16, 24), slice(24, 25)]
    assert rank_clusters(10, shares("0.05", "0.95")) == [slice(0, 1), slice(1, 10)]  # halves go up
    assert rank_clusters(3, shares("0.01", "0.02")) == [slice(0, 3)]
    assert rank_clusters(4, []) == [slice(0, 4)]


def test_the_lightest_and_heaviest_of_25_would_be_printed_exactly():
    weights = np.random.default_rng(4).permutation(np.arange(25) * 4.0 + 1)
    data = dataset({"weight": weights}, {"weight": numeric(0, 100, 0.1)})
    mechanism = NoisyClusters(epsilon=1, quantiles=FIVE, as_published=True)
    ledger, noise = dn.Ledger(":memory:"), dn.Noise()
    with pytest.raises(Refusal) as refused:
        mechanism.release(data, ledger=ledger, noise=noise)
    rows = sorted([int(np.argmin(weights)) + 1, int(np.argmax(weights)) + 1])
    assert f"{rows[0]}, {rows[1]}" in str(refused.value)
    assert "97" not in str(refused.value).replace(str(rows[0]), "").replace(str(rows[1]), "")
    assert noise.bytes_drawn == 0
    assert ledger.datasets() == []
    (warning,) = mechanism.preview(data).warnings
    assert warning in str(refused.value)
    exposed = exposed_records(weights.astype(int), shares(*FIVE))
    assert sorted(weights[exposed]) == [1, 97]
    given_ = {"epsilon": Fraction(1), "confidence": Fraction(9, 10), "noise": noise}
    noisy, radius = published_noise(weights.astype(int), shares(*FIVE), **given_)
    assert noisy[exposed].tolist() == weights[exposed].tolist()
    assert radius[exposed].tolist() == [0, 0]
    assert (radius[~exposed] > 0).all()
    # Equal values are told by source row.
    columns = {"order": list("abcabc"), "weight": [1.0, 2, 1, 1, 2, 5]}
    attributes = {"order": {"role": "identifier"}, "weight": numeric(0, 10)}
    data = dataset(columns, attributes, together="order")  # 2, 4, 6
    with pytest.raises(Refusal, match=r"\b3, 6\b"):
        publish(data, epsilon=1, quantiles=["0.7"], as_published=True)
    assert len(publish(data, epsilon=1, quantiles=["0.1"], as_published=True).release) == 3


def test_the_published_promise_is_a_claim():
    schema = policy({"weight": numeric()}).schema
    promise = NoisyClusters(epsilon=1, quantiles=FIVE, as_published=True).promise(schema)
    assert (promise.basis, promise.holds) == (Basis.CLAIMED, None)
    assert "2022" in promise.claim
    assert promise.why
    assert not promise.true_loss("replace-one").bounded
    data = dataset({"weight": np.arange(7.0), "length": np.arange(7.0)}, {"weight": numeric(), "length": numeric()})
    release, _ = publish(data, epsilon=1, quantiles={"weight": ["0.5"]}, as_published=True)
    measures = release.certificate.plain()["measures"]
    assert measures == {"records": 7, "published_intervals": {n: {"confidence": 0.9} for n in ("weight", "length")}}
    release, _ = publish(data, epsilon=1, quantiles={"weight": ["0.5"]}, as_published=True, confidence=0)
    assert release.data["weight_lower"].equals(release.data["weight"])
    assert release.data["weight_upper"].equals(release.data["weight"])


def test_promises():
    schema = policy({"place": {"role": "public"}, "weight": numeric(), "length": numeric(0, 1, 0.5)}).schema
    public = NoisyClusters(epsilon=2, borders={"weight": [1, 2]}).promise(schema)
    private = NoisyClusters(epsilon=2, quantiles={"weight": [0.5]}).promise(schema)
    assert isinstance(public.guarantee, WithinCluster)
    assert (public.guarantee.epsilon, public.guarantee.neighbours) == (2, "replace-one")
    assert "1, 2" in public.guarantee.clusters
    assert any("0, 1 " in line for line in public.in_clear)  # clusters of one point hide nothing
    assert private.guarantee == WithinPublishedBorders(epsilon=2, protects="package", neighbours="replace-one")
    assert private.basis is public.basis is Basis.PROVED
    for promise, name in ((public, "public cluster borders"), (private, "clusters are shown")):
        assert {name, "public record count"} <= {assumption.name for assumption in promise.assumptions}

    def guarantee(borders, resolution=1, **parameters):
        schema = policy({"weight": numeric(0, 6, resolution)}).schema
        return NoisyClusters(epsilon=1, borders=borders, **parameters).promise(schema).guarantee

    assert compose([guarantee([2, 4]), guarantee([2, 4], law="piecewise")]).epsilon == 2
    for other in (guarantee([2, 5]), guarantee([2, 4], resolution=0.5)):  # only equal clusters compose
        with pytest.raises(CompositionError):
            compose([guarantee([2, 4]), other])


def test_the_release_and_its_key():
    columns = {
        "order": list("abac"),
        "parcel": ["p0", "p1", "p2", "p3"],
        "place": list("xyxx"),
        "weight": [1.0, 2, 1, 6],
    }
    roles = {"order": "identifier", "parcel": "identifier", "place": "public"}
    attributes = {**{name: {"role": role} for name, role in roles.items()}, "weight": numeric()}
    data = dataset(columns, attributes, together="order")
    for form in ({"borders": [2]}, {"quantiles": [0.5]}):
        release, key = publish(data, epsilon=NO_NOISE, **form)
        assert release.data.column_names == ["row", "place", "weight", "weight_lower", "weight_upper"]
        assert key.table.column_names == ["row", "source_row", "order", "parcel"]
        assert len(key.table) == 4
        for line in key.table.to_pylist():
            assert columns["parcel"][line["source_row"] - 1] == line["parcel"]
            assert release.data["weight"][line["row"]].as_py() == {"a": 2, "b": 2, "c": 6}[line["order"]]
            assert release.data["place"][line["row"]].as_py() == columns["place"][line["source_row"] - 1]


def test_senseless_parameters_are_refused():
    private = {"quantiles": [0.5]}
    for parameters in (
        {},
        {"borders": [1], **private},
        *({"borders": borders} for borders in ([], "2", 2, [2, 1], [[1]])),
        *({"borders": borders} for borders in ({"weight": 2}, {"weight": []}, {"": [2]})),
        *({"quantiles": quantiles} for quantiles in ([0.5, 0.5], [0, 0.5], [0.5, 1], ["half"])),
        *({**private, "border_share": share} for share in (0, 1)),
        {"borders": [1], "border_share": 0.5},
        {**private, "as_published": True, "border_share": 0.5},
        {"borders": [1], "as_published": True},
        {**private, "as_published": True, "law": "piecewise"},
        {**private, "as_published": "yes"},
        *({"borders": [1], **wrong} for wrong in ({"law": "gauss"}, {"confidence": 1}, {"epsilon": 0})),
    ):
        with pytest.raises(ParameterError):
            NoisyClusters(**{"epsilon": 1, **parameters})


def test_borders_that_do_not_fit_the_schema_are_refused():
    attributes = {"place": {"role": "public"}, "weight": numeric(), "length": numeric(0, 2)}
    for form, words in (
        ({"borders": [2]}, "borders"),
        ({"quantiles": [0.5]}, "quantiles"),
        ({"borders": {"height": [2]}}, "'height'"),
        ({"borders": {"place": [2]}}, "'place'"),
        ({"quantiles": {"height": [0.5]}}, "'height'"),
        *(({"borders": {"weight": [border]}}, "'weight'") for border in (2.5, 7, 0)),
        ({"quantiles": {"length": [0.5]}}, "'length'"),
    ):
        with pytest.raises(ParameterError, match=words):
            NoisyClusters(epsilon=1, **form).promise(policy(attributes).schema)
    for other in ({"role": "sensitive"}, {"role": "quasi-identifier", "kind": "category", "domain": ["a", "b"]}):
        schema = policy({"weight": numeric(), "content": other}).schema
        for form in ({"borders": {"weight": [2]}}, {"quantiles": {"weight": [0.5]}}):
            with pytest.raises(ParameterError, match="content"):
                NoisyClusters(epsilon=1, **form).promise(schema)


def test_foresight_of_public_borders_is_the_owners():
    data = dataset({"weight": [0.0, 1, 1, 5]})
    told = NoisyClusters(epsilon=1, borders=[2, 4]).preview(data)
    assert told.details["cluster_sizes"] == {"weight": [3, 0, 1]}
    assert any("3, 0, 1" in line for line in told.lines)
    assert told.warnings  # a record is alone in its cluster
    assert repr(told) == "Foresight(private)"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=40), st.data())
def test_exposed_records_are_those_without_noise(values, data):
    cuts = sorted(data.draw(st.sets(st.fractions(Fraction(1, 50), Fraction(49, 50), max_denominator=50), max_size=5)))
    steps = np.array(values)
    exposed = exposed_records(steps, cuts)
    noise = dn.Noise()
    arguments = {"epsilon": Fraction(1, 10), "confidence": Fraction(1, 2), "noise": noise}
    _, radius = published_noise(steps, cuts, **arguments)
    assert (exposed == (radius == 0)).all()  # at this epsilon every other radius is above 0
    ranked = np.sort(steps)
    ends = [0, *(math.floor(cut * len(values) + Fraction(1, 2)) for cut in cuts), len(values)]
    alone = sum(b - a for a, b in itertools.pairwise(ends) if a < b and ranked[a] == ranked[b - 1])
    assert exposed.sum() == alone
