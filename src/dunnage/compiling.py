# SPDX-License-Identifier: Apache-2.0
"""How kernels are compiled: by numba, at their first call, kept on disk where a cache can be written."""

from __future__ import annotations

import dis
import functools
import threading
from collections.abc import Callable
from typing import Any

# Other threads run on meanwhile, and what nobody needs is not compiled: calls from C, checks for divisions by zero.
_OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
_LOCK = threading.RLock()


class Kernel:
    """A function that is compiled when it is first called: until then numba is not even imported."""

    def __init__(self, plain: Callable[..., Any], *, is_piece: bool) -> None:
        self.plain = plain  # the function as it is written, for problems too small to be worth compiling
        self._is_piece = is_piece
        functools.update_wrapper(self, plain)

    @functools.cached_property
    def compiled(self) -> Callable[..., Any]:
        from numba import njit

        with _LOCK:
            known: Callable[..., Any] | None = self.__dict__.get("compiled")  # another thread may have been first
            if known is not None:
                return known
            scope = self.plain.__globals__
            # Numba must find compiled functions where this one calls them.
            for name in {step.argval for step in dis.get_instructions(self.plain) if step.opname == "LOAD_GLOBAL"}:
                if isinstance(scope.get(name), Kernel):
                    scope[name] = scope[name].compiled
            options = {**_OPTIONS, "no_cpython_wrapper": True} if self._is_piece else {**_OPTIONS, "cache": True}
            try:
                self.compiled = njit(**options)(self.plain)
            except RuntimeError:  # no folder that a cache could be written to
                self.compiled = njit(**_OPTIONS)(self.plain)
            return self.compiled

    def __call__(self, *args: Any) -> Any:
        return self.compiled(*args)


def kernel(function: Callable[..., Any]) -> Kernel:
    """Compile a function that is called from outside, with a cache on disk."""
    return Kernel(function, is_piece=False)


def piece(function: Callable[..., Any]) -> Kernel:
    """Compile a function that only kernels call: part of what they keep on disk, and sooner compiled."""
    return Kernel(function, is_piece=True)
