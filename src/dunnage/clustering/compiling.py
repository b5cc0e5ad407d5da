# SPDX-License-Identifier: Apache-2.0
"""What all clustering kernels share. Imports numba: import this module only where a kernel is run."""

from __future__ import annotations

from dunnage.arrays import FloatArray, IntArray
from dunnage.clustering.metric import CodeArray
from dunnage.compiling import piece


@piece
def distance(
    first: int,
    second: int,
    numbers: FloatArray,
    codes: CodeArray,
    entries: FloatArray,
    starts: IntArray,
    sizes: IntArray,
    near: FloatArray,
) -> float:
    """Distance of two records, by the metric's ``near`` weights."""
    total = 0.0
    num = numbers.shape[0]
    for axis in range(num):
        total += near[axis] * abs(numbers[axis, first] - numbers[axis, second])
    for axis in range(codes.shape[0]):
        place = starts[axis] + codes[axis, first] * sizes[axis] + codes[axis, second]
        total += near[num + axis] * entries[place]
    return total
