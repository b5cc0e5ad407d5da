# SPDX-License-Identifier: Apache-2.0
"""Speed of the exact noise, in draws per second of processor time on one core.

The peer is OpenDP's exact sampler of the same law. NumPy's floating-point Laplace is listed for orientation
only: it is not safe to publish.

Run with ``python -m benchmarks.noise``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import opendp.prelude as dp

from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise

SCALES = (1, 10, 100, 1000)
NUM_ARRAY, NUM_SCALAR = 5_000_000, 20_000


def rate(draw: Callable[[int], Any], num: int, rounds: int = 3) -> float:
    """Return the best of ``rounds`` rates of ``draw(num)``, in million draws per second."""
    draw(10)  # tables and imports are not part of the rate
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        draw(num)
        seconds.append(time.process_time() - start)
    return num / min(seconds) / 1e6


def opendp_laplace(scale: int) -> Callable[[int], Any]:
    """Return OpenDP's exact sampler, drawing a whole vector per call."""
    dp.enable_features("contrib")
    domain, metric = dp.vector_domain(dp.atom_domain(T=dp.i32)), dp.l1_distance(T=dp.i32)
    measurement = dp.m.make_laplace(domain, metric, scale=float(scale))
    return lambda num: measurement([0] * num)


def one_by_one(draw: Callable[[], int]) -> Callable[[int], Any]:
    return lambda num: [draw() for _ in range(num)]


def run() -> list[dict[str, object]]:
    """Measure everything in one run; each row has name, ours, peer, ratio and unit."""
    noise, generator, rows = Noise(), np.random.default_rng(), []
    for scale in SCALES:
        exact = rate(partial(noise_arrays.discrete_laplace, noise, scale), NUM_ARRAY)
        theirs = rate(opendp_laplace(scale), NUM_SCALAR)
        unsafe = rate(partial(generator.laplace, 0.0, float(scale)), NUM_ARRAY)
        one = rate(one_by_one(partial(noise.discrete_laplace, Fraction(scale))), NUM_SCALAR)
        rows += [
            _row(f"discrete Laplace, scale {scale}, array; peer OpenDP", exact, theirs),
            _row(f"discrete Laplace, scale {scale}, one by one; peer OpenDP", one, theirs),
            _row(f"discrete Laplace, scale {scale}, array; peer NumPy float (unsafe)", exact, unsafe),
        ]
    return rows


def _row(name: str, ours: float, peer: float) -> dict[str, object]:
    return {"name": name, "ours": ours, "peer": peer, "ratio": ours / peer, "unit": "million draws per CPU second"}


def main() -> None:
    print(f"{'million draws per CPU second':64}{'ours':>9}{'peer':>9}{'ratio':>9}")
    for row in run():
        print(f"{row['name']:64}{row['ours']:9.3f}{row['peer']:9.3f}{row['ratio']:9.1f}")


if __name__ == "__main__":
    main()
