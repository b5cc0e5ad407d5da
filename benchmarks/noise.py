# SPDX-License-Identifier: Apache-2.0
"""Speed of the exact noise, in draws per second of processor time on one core.

The peer is OpenDP's exact sampler of the same law. NumPy's floating-point Laplace is listed for orientation
only: it is not safe to publish.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import opendp.prelude as dp

from benchmarks.measuring import Row, rate, row
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise

RATE = "million draws per CPU second"
SCALES = (1, 10, 100, 1000)
NUM_ARRAY, NUM_SCALAR = 5_000_000, 20_000


def drawing(draw: Callable[[int], Any], num: int) -> float:
    draw(10)  # tables and imports are not part of the rate
    return rate(lambda: draw(num), num)


def opendp_laplace(scale: int) -> Callable[[int], Any]:
    """Return OpenDP's exact sampler, drawing a whole vector per call."""
    dp.enable_features("contrib")
    domain, metric = dp.vector_domain(dp.atom_domain(T=dp.i32)), dp.l1_distance(T=dp.i32)
    measurement = dp.m.make_laplace(domain, metric, scale=float(scale))
    return lambda num: measurement([0] * num)


def run() -> list[Row]:
    noise, generator, rows = Noise(), np.random.default_rng(), []
    for scale in SCALES:
        exact = drawing(partial(noise_arrays.discrete_laplace, noise, scale), NUM_ARRAY)
        theirs = drawing(opendp_laplace(scale), NUM_SCALAR)
        unsafe = drawing(partial(generator.laplace, 0.0, float(scale)), NUM_ARRAY)
        one = drawing(lambda num, s=Fraction(scale): [noise.discrete_laplace(s) for _ in range(num)], NUM_SCALAR)
        rows += [
            row(f"discrete Laplace, scale {scale}, array; peer OpenDP", exact, theirs, RATE),
            row(f"discrete Laplace, scale {scale}, one by one; peer OpenDP", one, theirs, RATE),
            row(f"discrete Laplace, scale {scale}, array; peer NumPy float (unsafe)", exact, unsafe, RATE),
        ]
    return rows
