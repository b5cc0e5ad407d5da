# SPDX-License-Identifier: Apache-2.0
"""The packing models as parameters: what they take, refuse and say of themselves."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dunnage.errors import ParameterError
from dunnage.planning.models import Robust, Sealed, Standard, Stochastic
from dunnage.release import Uncertain

NO_RISK = [1, -0.1, 1.5, float("nan"), float("inf"), "much", "", None, [], "1e400"]


@pytest.mark.parametrize("risk", NO_RISK)
@pytest.mark.parametrize("model", [Stochastic, Robust])
def test_a_risk_is_a_share_below_one(model: Any, risk: Any) -> None:
    with pytest.raises(ParameterError, match="risk"):
        model(risk=risk)


def test_no_risk_at_all_is_for_the_stochastic_model_only() -> None:
    assert Stochastic(risk=0).risk == 0
    with pytest.raises(ParameterError, match="more than 0"):
        Robust(risk=0)


def test_a_risk_is_read_as_a_decimal() -> None:
    for given in (0.05, "0.05", "5e-2", Fraction(1, 20)):
        assert Stochastic(risk=given).risk == Fraction(1, 20)
    assert Stochastic(risk="1/3").risk == Fraction(1, 3)


@pytest.mark.parametrize("change", [{"scenarios": 0}, {"scenarios": 2.5}, {"scenarios": True}, {"seed": -1}])
def test_samples_are_checked(change: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="scenarios"):
        Stochastic(as_published=True, **change)


@pytest.mark.parametrize("budget", ["", "Largest", "none", None, 3])
def test_budgets_are_checked(budget: Any) -> None:
    with pytest.raises(ParameterError, match="largest, items, published"):
        Robust(budget=budget)


@pytest.mark.parametrize("statistic", ["", "median", "Upper", None])
def test_statistics_are_checked(statistic: Any) -> None:
    with pytest.raises(ParameterError, match="upper, mean"):
        Standard(statistic=statistic)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (Standard(), {"name": "standard", "statistic": "upper"}),
        (Robust(), {"name": "robust", "budget": "largest"}),
        (Robust(budget="items", risk="0.1"), {"name": "robust", "budget": "items", "risk": 0.1}),
        (Stochastic(), {"name": "stochastic", "risk": 0.05}),
        (
            Stochastic(as_published=True, seed=4),
            {"name": "stochastic", "risk": 0.05, "as_published": True, "scenarios": 100, "seed": 4},
        ),
        (Sealed(), {"name": "sealed"}),
    ],
)
def test_models_say_what_they_are(model: Any, told: dict[str, Any]) -> None:
    assert model.describe().plain() == told
    assert json.loads(json.dumps(model.describe().plain())) == told
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.name = "other"


def test_the_standard_model_reads_one_number() -> None:
    lower, upper, mean = np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([2.0, 3.5])
    known = Uncertain("weight", "kg", lower, upper, mean, np.array([0, 1]), None)
    assert Standard().weights(known).tolist() == [3, 4]
    assert Standard(statistic="mean").weights(known).tolist() == [2, 3.5]
    with pytest.raises(ParameterError, match="no mean of weight"):
        Standard(statistic="mean").weights(dataclasses.replace(known, nominal=None))
