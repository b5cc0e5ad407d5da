# SPDX-License-Identifier: Apache-2.0
"""A mechanism is one class: what it takes to add one, shown on two that nobody should use.

The rules of test_conformance.py are checked on both of them.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from tests.builders import a_policy
from tests.refusals import refusal

import dunnage as dn
from dunnage.errors import ParameterError, PolicyError, Refusal
from dunnage.mechanisms import MECHANISMS
from dunnage.mechanisms.base import Epsilon, Flag, Foresight, K
from dunnage.mechanisms.classes import ClassMechanism, EquivalenceClasses, Intervals
from dunnage.mechanisms.noisy import NoisyColumns, NoisyMechanism, cut_cells, noisy_domains
from dunnage.model.guarantees import Neighbours, Promise, PureDP
from dunnage.publishing import foresee


class ToyNoise(NoisyMechanism):
    """Laplace noise on every number, without a choice."""

    name = "toy-noise"
    proof = ("noisy-values.md#the-laws",)
    epsilon: Epsilon
    loud: Flag = False

    def cells(self, schema):
        domains = noisy_domains(schema, self.name)
        return cut_cells(domains, {}, law="laplace", epsilon=self.epsilon, confidence=Fraction(1, 2))

    def promise(self, schema) -> Promise:
        guarantee = PureDP(epsilon=self.epsilon, protects=schema.protects, neighbours=Neighbours.REPLACE_ONE)
        return self.noisy_promise(guarantee, schema)

    def stated_cells(self, release, schema):
        return self.cells(schema)

    def perturb(self, dataset, prepared, noise) -> NoisyColumns:
        return NoisyColumns.of(self.cells(dataset.schema), dataset, noise)

    def preview(self, dataset) -> Foresight:
        return Foresight(warnings=("it is loud",) if self.loud else (), lines=(f"{len(dataset)} rows",))


class ToyClass(ClassMechanism):
    """All records in one class."""

    name = "toy-class"
    k: K

    @property
    def least_k(self) -> int:
        return self.k

    def promise(self, schema) -> Promise:
        return self.class_promise(schema, in_clear=("the smallest and the largest value",), numerics="exact")

    def classes(self, dataset, progress=None) -> EquivalenceClasses:
        if len(dataset) < self.k:
            raise Refusal("too few records.")
        told, losses = [], []
        for attribute in dataset.schema.quasi_identifiers:
            values = dataset.numbers(attribute.name)
            lower, upper = values.min(keepdims=True), values.max(keepdims=True)
            told.append(Intervals(name=attribute.name, lower=lower, upper=upper))
            losses.append(len(dataset) * float(upper[0] - lower[0]) / attribute.domain.diameter)
        return EquivalenceClasses(
            of_row=np.zeros(len(dataset), dtype=np.int64),
            generalised=tuple(told),
            losses=tuple(losses),
            importance=(1.0,) * len(told),
        )


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for kind in (ToyNoise, ToyClass):
        monkeypatch.setitem(MECHANISMS, kind.name, kind)


WEIGHT = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 9], "resolution": 1}


def data_for(**mechanism):
    policy = a_policy(mechanism, {"toy": {"role": "identifier"}, "weight": WEIGHT}, dataset="toys", protects="toy")
    rows = pa.table({"toy": [f"t{i}" for i in range(6)], "weight": [float(i) for i in range(6)]})
    return dn.load(rows, policy)


def test_its_owner_is_told():
    told = foresee(data_for(name="toy-noise", epsilon=1, loud=True))
    assert (told.warnings, told.lines) == (("it is loud",), ("6 rows",))
    assert foresee(data_for(name="toy-class", k=2)).to_dict() == {"warnings": [], "lines": []}


def test_its_parameters_are_read_and_refused():
    wrong = {
        "mechanism.loudd": {"name": "toy-noise", "epsilon": 1, "loudd": True},
        "mechanism.k": {"name": "toy-class"},
    }
    for where, mechanism in wrong.items():
        error = refusal(PolicyError, dn.promise, data_for(**mechanism).policy)
        assert [problem.where for problem in error.problems] == [where]
    assert "loud" in str(refusal(ParameterError, ToyNoise, epsilon=1, loud="yes"))
    refusal(Refusal, dn.publish, data_for(name="toy-class", k=7), ledger=dn.Ledger(":memory:"))
