# SPDX-License-Identifier: Apache-2.0
"""The packing models as parameters: what they take, refuse and say of themselves."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction

import numpy as np
import pytest
from tests.refusals import refused

from dunnage.planning.models import Robust, Sealed, Standard, Stochastic
from dunnage.release import Uncertain


def test_what_models_take_and_refuse() -> None:
    no_risks = [1, -0.1, 1.5, float("nan"), float("inf"), "much", "", None, [], "1e400"]
    refused(lambda risk: Stochastic(risk=risk), no_risks, "risk")
    robust = [*(risk for risk in no_risks if risk is not None), 0]
    refused(lambda risk: Robust(budget="items", risk=risk), robust, "risk")
    refused(lambda risk: Robust(risk=risk), [*robust, "5%", 0.05], "risk")
    assert Stochastic(risk=0).risk == 0
    for given in (0.05, "0.05", "5e-2", Fraction(1, 20)):
        assert Stochastic(risk=given).risk == Fraction(1, 20)
    assert Stochastic(risk="1/3").risk == Fraction(1, 3)
    samples = [{"scenarios": 0}, {"scenarios": 2.5}, {"scenarios": True}, {"seed": -1}]
    refused(lambda change: Stochastic(as_published=True, **change), samples, "scenarios")
    refused(lambda budget: Robust(budget=budget), ["", "Largest", "none", None, 3], "largest", "items", "published")
    refused(lambda statistic: Standard(statistic=statistic), ["", "median", "Upper", None], "upper", "mean")


def test_models_say_what_they_are() -> None:
    drawn = {"name": "stochastic", "risk": 0.05, "as_published": True, "scenarios": 100, "seed": 4}
    for model, told in (
        (Standard(), {"name": "standard", "statistic": "upper"}),
        (Robust(), {"name": "robust", "budget": "largest"}),
        (Robust(budget="items", risk="0.1"), {"name": "robust", "budget": "items", "risk": 0.1}),
        (Stochastic(), {"name": "stochastic", "risk": 0.05}),
        (Stochastic(as_published=True, seed=4), drawn),
        (Sealed(), {"name": "sealed"}),
    ):
        assert json.loads(json.dumps(model.describe().plain())) == told
        with pytest.raises(dataclasses.FrozenInstanceError):
            model.name = "other"  # type: ignore[misc]


def test_the_standard_model_reads_one_number() -> None:
    lower, upper, mean = np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([2.0, 3.5])
    known = Uncertain("weight", "kg", lower, upper, mean, np.array([0, 1]), None)
    assert Standard().weights(known).tolist() == [3, 4]
    assert Standard(statistic="mean").weights(known).tolist() == [2, 3.5]
    refused(Standard(statistic="mean").weights, [dataclasses.replace(known, nominal=None)], "weight")
