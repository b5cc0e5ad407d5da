# SPDX-License-Identifier: Apache-2.0
"""Types of arrays, and how kernels over them are compiled: by numba, at their first call, with a cache on disk."""

from __future__ import annotations

import dis
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
# Other threads keep running meanwhile. Calls from C and checks for division by zero are not needed, so not compiled.
_OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
_LOCK = threading.RLock()


@functools.cache
def _timer() -> Any:
    from numba.core import event

    untyped: Any = event
    timer = untyped.TimingListener()
    untyped.register("numba:compile", timer)  # not told of what is loaded from the disk
    return timer


def compile_seconds() -> float:
    """Return how long this program has been compiling."""
    return float(_timer().duration) if _timer.cache_info().currsize and _timer().done else 0.0


class Kernel:
    """A function that is compiled at its first call; numba is not imported before."""

    def __init__(self, plain: Callable[..., Any], *, is_piece: bool) -> None:
        self.plain = plain  # the Python function, for problems too small to be worth compiling
        self._is_piece = is_piece
        functools.update_wrapper(self, plain)

    @functools.cached_property
    def compiled(self) -> Callable[..., Any]:
        from numba import njit

        with _LOCK:
            _timer()
            ready: Callable[..., Any] | None = self.__dict__.get("compiled")  # another thread may have been first
            if ready is not None:
                return ready
            scope = self.plain.__globals__
            # Numba needs compiled functions under the names that this one calls.
            for name in {step.argval for step in dis.get_instructions(self.plain) if step.opname == "LOAD_GLOBAL"}:
                if isinstance(scope.get(name), Kernel):
                    scope[name] = scope[name].compiled
            options = {**_OPTIONS, "no_cpython_wrapper": True} if self._is_piece else {**_OPTIONS, "cache": True}
            try:
                self.compiled = njit(**options)(self.plain)
            except RuntimeError:  # there is no writable folder for a cache
                self.compiled = njit(**_OPTIONS)(self.plain)
            return self.compiled

    def __call__(self, *args: Any) -> Any:
        return self.compiled(*args)


def kernel(function: Callable[..., Any]) -> Kernel:
    """Compile a function for calls from outside, with a cache on disk."""
    return Kernel(function, is_piece=False)


def piece(function: Callable[..., Any]) -> Kernel:
    """Compile a function that only kernels call: it is part of their cache, and compiles faster."""
    return Kernel(function, is_piece=True)
