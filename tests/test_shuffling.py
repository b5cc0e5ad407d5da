"""Shuffled reports: the bound against the exact loss of small shuffles, and against its own pair of counts, listed."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from scipy.stats import binom
from tests.estimates_help import PLACES, fleet_tallies, truck_task

from dunnage import verify
from dunnage.collecting.estimate import estimate, write_estimates
from dunnage.collecting.shuffling import shuffled_delta, shuffled_epsilon
from dunnage.devices.client import mechanisms_of
from dunnage.devices.places import RandomisedResponse


def listed(epsilon: float, of_report: float, num: int) -> float:
    """The delta of the pair of counts, by listing all cases."""
    likely, alike = math.exp(of_report) / (math.exp(of_report) + 1), math.exp(-of_report)
    pair: tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]] = (Counter(), Counter())
    for c in range(num):
        for a in range(c + 1):
            chance = float(binom.pmf(c, num - 1, alike)) * math.comb(c, a) / 2**c
            for d, own in ((1, likely), (0, 1 - likely)):
                pair[0][a + d, c - a + 1 - d] += chance * own
                pair[1][a + 1 - d, c - a + d] += chance * own
    return sum(max(pair[0][seen] - math.exp(epsilon) * pair[1][seen], 0.0) for seen in pair[0])


@pytest.mark.parametrize("of_report", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("num", [2, 3, 10, 40])
def test_delta_is_that_of_all_cases(of_report: float, num: int) -> None:
    for part in (0.0, 0.2, 0.5, 0.9, 0.999):
        expected = listed(part * of_report, of_report, num)
        assert shuffled_delta(part * of_report, of_report, num) == pytest.approx(expected, abs=1e-10)
    assert shuffled_delta(of_report, of_report, num) == 0.0


@pytest.mark.parametrize(("epsilon", "num_inputs", "num"), [("1", 2, 4), ("1", 3, 4), ("2", 3, 3), ("0.5", 2, 6)])
def test_no_small_shuffle_loses_more(epsilon: str, num_inputs: int, num: int) -> None:
    """The exact delta of shuffled randomised responses, for every two inputs and all inputs of the others."""
    law = RandomisedResponse(num_inputs=num_inputs, epsilon=Fraction(epsilon))
    odds = math.exp(float(law.epsilon))
    chance = [[(odds if s == i else 1) / (odds + num_inputs - 1) for s in range(num_inputs)] for i in range(num_inputs)]

    def seen(inputs: tuple[int, ...]) -> Counter[tuple[int, ...]]:
        law_of: Counter[tuple[int, ...]] = Counter()
        for symbols in itertools.product(range(num_inputs), repeat=num):
            law_of[tuple(sorted(symbols))] += math.prod(chance[i][s] for i, s in zip(inputs, symbols, strict=True))
        return law_of

    for others in itertools.combinations_with_replacement(range(num_inputs), num - 1):
        laws = [seen((own, *others)) for own in range(num_inputs)]
        for one, other in itertools.permutations(laws, 2):
            for part in (0.1, 0.4, 0.8):
                at = part * float(law.epsilon)
                exact = sum(max(one[multiset] - math.exp(at) * other[multiset], 0.0) for multiset in one)
                assert exact <= shuffled_delta(at, float(law.epsilon), num) + 1e-12


def test_central_epsilon() -> None:
    values = [shuffled_epsilon(Fraction(4), num) for num in (1, 2, 1_000, 10_000, 100_000)]
    assert values[:2] == [4.0, 4.0]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.43
    for value, num in zip(values[3:], (10_000, 100_000), strict=True):
        assert shuffled_delta(value, 4.0, num) <= 1e-7 < shuffled_delta(value - 0.001, 4.0, num)


def test_certificates_of_reports_without_senders_state_it(tmp_path: Path) -> None:
    task = truck_task(PLACES)
    tallies = fleet_tallies(task, 2_000)
    release = estimate(tallies, task, allow_noise=True, senders="unlinkable")
    stated = release.certificate.estimates.shuffled
    assert stated is not None
    assert (stated.basis, stated.delta) == ("claimed", 1e-7)
    assert "shuffl" in stated.trust or "hides" in stated.trust
    for name, tiers in stated.epsilon.items():
        for tier, epsilon in tiers.items():
            num = release.certificate.estimates.reports[name][tier]
            loss = mechanisms_of(task)[name].true_loss(tier)
            assert epsilon == shuffled_epsilon(loss, num) <= loss
    write_estimates(release, tmp_path / "release")
    assert verify(tmp_path / "release").ok
    assert any(line.startswith("Trust") for line in release.owner.figures(release))
    forged = json.loads((tmp_path / "release" / "certificate.json").read_text())
    name, tiers = next(iter(forged["measures"]["shuffled"]["epsilon"].items()))
    forged["measures"]["shuffled"]["epsilon"][name] = dict.fromkeys(tiers, 0.001)
    (tmp_path / "release" / "certificate.json").write_text(json.dumps(forged))
    assert not verify(tmp_path / "release").ok
    for senders in (None, "token"):
        assert estimate(tallies, task, allow_noise=True, senders=senders).certificate.estimates.shuffled is None
