"""How the loops of kernel.py are compiled: by numba, to code kept on disk (NUMBA_CACHE_DIR, or beside the file).

Without numba, or with GPU_COMMONS_NUMBA=0, `COMPILED` is false and the engine goes by NumPy alone, to the same answers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def compiler() -> Callable[..., Any] | None:
    if os.environ.get("GPU_COMMONS_NUMBA", "1") == "0":
        return None
    try:
        import numba
    except ImportError:
        return None
    found: Callable[..., Any] = numba.njit
    return found


_COMPILER: Final = compiler()
COMPILED: Final = _COMPILER is not None


def compiled(function: F, **more: bool) -> F:
    """To be called from Python. Nothing in it may make an array: numba's runtime is left out (`_nrt`), because it would
    count references to arrays at every use, which costs four times the work itself."""
    how = {"error_model": "numpy", "_nrt": False, "cache": True, "no_cfunc_wrapper": True, **more}
    if _COMPILER is None:
        return function
    try:
        return cast(F, _COMPILER(function, **how))
    except RuntimeError:  # there is no folder that compiled code could be kept in
        return cast(F, _COMPILER(function, **{**how, "cache": False}))


def inlined(function: F) -> F:
    """A part of compiled functions, put into its callers."""
    return compiled(function, forceinline=True, no_cpython_wrapper=True)
