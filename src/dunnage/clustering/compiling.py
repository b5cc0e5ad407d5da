# SPDX-License-Identifier: Apache-2.0
"""Compiled pieces that all clustering kernels share. Imports numba: import this module only where a kernel is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from dunnage.clustering.metric import CodeArray, FloatArray, IntArray

# Other threads run on meanwhile, and what nobody needs is not compiled: calls from C, checks for divisions by zero.
_OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
_PIECE_OPTIONS = {**_OPTIONS, "no_cpython_wrapper": True}


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that is called from outside, with a cache on disk where one can be written."""
    compiled: Callable[..., Any]
    try:
        compiled = njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # no folder that a cache could be written to
        compiled = njit(cache=False, **_OPTIONS)(function)
    return compiled


def piece(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that only kernels call: part of what they keep on disk, and sooner compiled."""
    compiled: Callable[..., Any] = njit(**_PIECE_OPTIONS)(function)
    return compiled


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
