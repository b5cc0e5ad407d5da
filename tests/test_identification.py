# SPDX-License-Identifier: Apache-2.0
"""Whose row a noisy one is: posteriors and truck linkage against Bayes by listing everything."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papers.li2022_beside import row_posterior
from tests.certificates_help import certificate_of
from tests.settle_help import cut, noisy_release

import dunnage as dn
from dunnage.errors import ParameterError
from dunnage.model.laws import Cells
from dunnage.planning import linkage as identification
from dunnage.planning.linkage import NoisyRows, noisy_linkage

LAWS = ("laplace", "piecewise")


def cells_of(
    last: int = 10, borders: tuple[int, ...] = (), law: str = "laplace", epsilon: Any = 2, confidence: Any = "0.9"
) -> Cells:
    return cut(0, last, "1", epsilon, confidence=confidence, law=law, borders=borders)


def release_of(cells: Any, noisy: Any, public: Any = None, **columns: Any) -> dn.Release:
    """Make a noisy release of given noisy values, as it is read; of weights alone if they have no names."""
    cells, noisy = ({"weight": cells}, {"weight": noisy}) if isinstance(cells, Cells) else (cells, noisy)
    return noisy_release({name: (cells[name], values) for name, values in noisy.items()}, public=public, **columns)


def likelihood(cells: Cells, seen: int, truth: int) -> float:
    """Return the probability of a noisy point, 0 in another cell."""
    own = int(cells.index(np.array([truth]))[0])
    if int(cells.index(np.array([seen]))[0]) != own:
        return 0.0
    cell = cells.cells[own]
    return float(np.exp(cell.law.log_likelihood(seen - cell.first, truth - cell.first)))


def joint_posterior(cells: list[Cells], seen: list[tuple[int, ...]], truth: tuple[int, ...]) -> list[float]:
    """List the target's row by Bayes over all true values of all other rows and all orders: no formula of ours."""
    points = list(itertools.product(*(range(one.domain.num_steps + 1) for one in cells)))

    def chance(row: tuple[int, ...], value: tuple[int, ...]) -> float:
        return math.prod(likelihood(one, b, w) for one, b, w in zip(cells, row, value, strict=True))

    # P(target is row i and all rows are seen): the others' values are summed out one by one.
    found = []
    for target in range(len(seen)):
        total = 0.0
        for others in itertools.product(points, repeat=len(seen) - 1):
            values = [*others[:target], truth, *others[target:]]
            total += math.prod(chance(row, value) for row, value in zip(seen, values, strict=True))
        found.append(total)
    return [one / sum(found) for one in found]


def test_the_posterior_is_that_of_bayes_over_everything() -> None:
    seen = [(0,), (2,), (1,)]
    for law, borders in itertools.product(LAWS, ((), (3,))):
        cells = cells_of(5, borders, law, "1.5")
        release = release_of(cells, [b for (b,) in seen])
        for truth in range(3):
            ours = row_posterior(release, {"weight": np.array([truth], dtype=float)})[0]
            assert ours == pytest.approx(joint_posterior([cells], seen, (truth,)), abs=1e-12), (law, borders)
    several = {"weight": cells_of(3, (), "laplace", 1), "volume": cells_of(2, (1,), "piecewise", 2, "0.5")}
    pairs = [(0, 1), (3, 2), (2, 0)]
    release = release_of(several, {"weight": [b for b, _ in pairs], "volume": [b for _, b in pairs]})
    for truth in itertools.product(range(4), range(3)):
        values = {name: np.array([float(w)]) for name, w in zip(several, truth, strict=True)}
        expected = joint_posterior(list(several.values()), pairs, truth)
        assert row_posterior(release, values)[0] == pytest.approx(expected, abs=1e-12), truth


def test_rows_of_other_cells_or_public_values_are_never_it() -> None:
    towns = ["Ghent", "Bruges", "Ghent", "Ghent", "Ghent"]
    release = release_of(cells_of(10, (4,)), [0, 3, 5, 10, 2], {"to": towns})
    found = row_posterior(release, {"weight": np.array([1.0, 7.0, 1.0, 9.0])}, np.array([0, 0, 1, 1]))
    assert (found[:2] > 0).tolist() == [[True, False, False, False, True], [False, False, True, True, False]]
    assert found[2].tolist() == [0, 1, 0, 0, 0]
    assert found[3].sum() == 0  # nobody heavy goes to Bruges
    assert found[:3].sum(axis=1) == pytest.approx(1)
    release = release_of(cells_of(), [1, 5, 9])  # values off the grid are taken to it
    off, on = (row_posterior(release, {"weight": values}) for values in ([4.6, 5.4], [5.0, 5.0]))
    assert np.array_equal(off, on)


def test_equation_30_as_printed_forgets_cells_and_denominators() -> None:
    cells = cells_of(10, (6,), epsilon=2)
    release = release_of(cells, [0, 5, 6, 9])
    printed = row_posterior(release, {"weight": [5.0]}, as_printed=True)[0]
    scales = np.array([5 / 2, 5 / 2, 2.0, 2.0])
    density = np.tanh(1 / (2 * scales)) * np.exp(-np.abs(np.array([0, 5, 6, 9]) - 5) / scales)
    assert printed == pytest.approx(density / density.sum())
    assert row_posterior(release, {"weight": [5.0]})[0][2:].tolist() == [0, 0]


def test_a_cell_of_one_point_tells_the_value() -> None:
    release = release_of(cells_of(4, (1,)), [0, 0, 2, 3])
    assert row_posterior(release, {"weight": [0.0]})[0] == pytest.approx([0.5, 0.5, 0, 0])
    assert row_posterior(release, {"weight": [0.0]}, as_printed=True)[0][:2] == pytest.approx([0.5, 0.5], abs=0.2)


def test_a_release_without_laws_or_with_others_is_refused() -> None:
    release = release_of(cells_of(), [1, 5, 9])

    def stating(measures: Any) -> dn.Release:
        body = {**release.certificate.plain(), "measures": measures}
        return dn.Release(certificate=certificate_of(body), data=release.data)

    silent = stating({"records": 3})
    assert noisy_linkage(silent, np.array([0, 0, 1])) is None
    with pytest.raises(ParameterError, match="volume"):
        NoisyRows.of(stating({"noise": {"volume": []}}))


def test_noisy_values_are_read_off_their_intervals() -> None:
    for law, confidence, borders in itertools.product(LAWS, ("0", "0.3", "0.9"), ((), (4,))):
        cells = cells_of(20, borders, law, 6, confidence)
        release = release_of(cells, np.arange(21), class_id=[-1] * 21)
        found = NoisyRows.of(dn.Release(certificate=release.certificate, data=release.data.drop_columns(["weight"])))
        for step, cell in enumerate(np.array(cells.cells, dtype=object)[cells.index(np.arange(21))]):
            radius = max(cell.law.radius, 0)
            if step - radius > cell.first or step + radius < cell.end:
                assert found.steps[0, step] == step, (law, confidence, borders)
            else:  # the interval is the whole cell
                assert cell.first <= found.steps[0, step] <= cell.end


def linkage_by_listing(cells: Cells, seen: list[int], truck: list[int], strata: list[int]) -> tuple[float, float]:
    """Average the best guess over each row, each true value it may have by Bayes."""
    points = range(cells.domain.num_steps + 1)
    evidence = [sum(likelihood(cells, b, w) for w in points) / len(points) for b in seen]
    mean, worst = 0.0, 0.0
    for row, (b, stratum) in enumerate(zip(seen, strata, strict=True)):
        for w in points:
            weights = [
                likelihood(cells, other, w) / evidence[i] * (strata[i] == stratum) for i, other in enumerate(seen)
            ]
            if not weights[row]:
                continue
            sums = [sum(x for x, t in zip(weights, truck, strict=True) if t == one) for one in set(truck)]
            best = max(sums) / sum(weights)
            mean += likelihood(cells, b, w) / len(points) / evidence[row] * best / len(seen)
            worst = max(worst, best)
    return mean, worst


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_truck_linkage_is_the_listed_one(data: st.DataObject) -> None:
    last = data.draw(st.integers(2, 9))
    borders = tuple(data.draw(st.sets(st.integers(1, last), max_size=2).map(sorted)))
    cells = cells_of(last, borders, data.draw(st.sampled_from(["laplace", "piecewise"])), data.draw(st.integers(1, 6)))
    num = data.draw(st.integers(1, 7))
    numbers = st.lists(st.integers(0, last), min_size=num, max_size=num)
    seen, truck = data.draw(numbers), data.draw(st.lists(st.integers(-1, 2), min_size=num, max_size=num))
    strata = data.draw(st.lists(st.integers(0, 1), min_size=num, max_size=num))
    release = release_of(cells, seen, {"to": [str(one) for one in strata]})
    found = noisy_linkage(release, np.array(truck))
    mean, worst = linkage_by_listing(cells, seen, truck, strata)
    assert found.mean == pytest.approx(mean)
    assert found.worst == pytest.approx(worst)
    assert found.kind == "estimate"


def test_some_values_give_nearly_what_all_do(monkeypatch: pytest.MonkeyPatch) -> None:
    generator, truck, usual = np.random.default_rng(5), np.arange(40) % 5, identification.MAX_WORK
    for law, fine in itertools.product(LAWS, (False, True)):
        cells = {"weight": cells_of(400, (100,), law, 4), "volume": cells_of(60, (), law, 3)}
        cells = {"weight": cells_of(40_000, (), law, 8, "0.5")} if fine else cells
        noisy = {
            name: one.perturb(generator.integers(0, one.domain.num_steps + 1, 40), dn.Noise(seed=3))
            for name, one in cells.items()
        }
        release, found = release_of(cells, noisy), []
        for work in (usual, 100_000):
            monkeypatch.setattr(identification, "MAX_WORK", work)
            found.append(noisy_linkage(release, truck))
        assert found[0].note != found[1].note
        assert found[1].mean == pytest.approx(found[0].mean, abs=0.01), (law, fine)
        assert found[1].worst <= found[0].worst + 1e-9


def test_many_rows_take_seconds_and_unique_public_values_are_certain(within: Callable[..., Any]) -> None:
    generator = np.random.default_rng(1)
    cells = cells_of(100_000, (), "laplace", 3)
    release = release_of(cells, cells.perturb(generator.integers(0, 100_001, 100_000), dn.Noise(seed=1)))
    with within(10):
        found = noisy_linkage(release, np.arange(100_000) // 5)
    assert 0 < found.mean < 0.01
    num = 20_000
    noisy = generator.integers(0, 101, num).astype(float)
    release = release_of(cells_of(100, (), "laplace", 3), noisy, {"to": np.repeat(np.arange(num // 2), 2)})
    with within(2):
        apart = noisy_linkage(release, np.arange(num) % 2)
        together = noisy_linkage(release, np.arange(num) // 2)
    assert together.plain() == {**apart.plain(), "mean": 1.0, "worst": 1.0, "note": identification.NOISY_NOTE}
    assert 0.5 < apart.mean < 1


def test_kept_rows_count_by_their_classes_and_those_left_behind_as_one_truck() -> None:
    release = release_of(cells_of(), [1, 1, 5, 9], class_id=[0, 0, -1, -1])
    found = noisy_linkage(release, np.array([0, 1, 0, 1]))
    alone = noisy_linkage(release_of(cells_of(), [5, 9]), np.array([0, 1]))
    assert found.mean == pytest.approx((2 * 0.5 + 2 * alone.mean) / 4)
    assert identification.LEFT_OUT_NOTE in found.note
    assert noisy_linkage(release_of(cells_of(), [1, 1], class_id=[0, 0]), np.array([0, 1])).mean == 0.5
    release = release_of(cells_of(), [1, 5, 9, 9])
    behind, truck = (noisy_linkage(release, np.array(bins)) for bins in ([0, -1, -1, 1], [0, 2, 2, 1]))
    assert behind == truck
    nobody = release_of(cells_of(), [])
    assert noisy_linkage(nobody, np.zeros(0, dtype=np.int64)) is None
    assert row_posterior(nobody, {"weight": [1.0]}).shape == (1, 0)
