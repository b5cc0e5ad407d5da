# SPDX-License-Identifier: Apache-2.0
"""How kernels are compiled. Imports numba: import this module only where a kernel is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

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
