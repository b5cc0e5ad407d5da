# SPDX-License-Identifier: Apache-2.0
"""What tests of noisy values share: datasets of numbers on a grid, and laws of releases worked out in decimals."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction

import pyarrow as pa

from dunnage.model.policy import Policy
from dunnage.tables.dataset import Dataset

ALPHA = 1e-9
SLACK = Fraction(1, 10**50)
CONFIDENCES = ("0.5", "0.7", "0.9", "0.99")
NO_NOISE = 700  # an epsilon at which a tiny domain gets noise with a chance below e^-80: values are the true ones


def numeric(lower=0, upper=6, resolution=1, **more):
    domain = {"domain": [lower, upper], "resolution": resolution, "unit": "kg", **more}
    return {"role": "quasi-identifier", "kind": "numeric", **domain}


def policy(attributes, **more):
    mechanism = {"name": "partition", "k": 2}  # the mechanism under test is called itself
    document = {"dataset": "parcels", "protects": "package", "attributes": attributes, "mechanism": mechanism}
    return Policy.from_dict({**document, **more})


def dataset(columns, attributes=None, **more):
    return Dataset.from_table(pa.table(columns), policy(attributes or {"weight": numeric()}, **more))


def decimal(number):
    number = Fraction(number)
    return Decimal(number.numerator) / Decimal(number.denominator)


def growth(exponent):
    with localcontext() as context:
        context.prec = 60
        return Fraction(decimal(exponent).exp())


def release_law(table, records):
    """Chances of all unordered releases of some records, by ``table[truth][seen]``; those without one are left out."""
    law = Counter()
    possible = [[seen for seen, chance in enumerate(table[truth]) if chance] for truth in records]
    for outcome in itertools.product(*possible):
        law[tuple(sorted(outcome))] += math.prod(
            (table[truth][seen] for truth, seen in zip(records, outcome, strict=True)), start=Fraction(1)
        )
    return law
