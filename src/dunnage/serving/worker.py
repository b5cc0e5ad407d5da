# SPDX-License-Identifier: Apache-2.0
"""A process that does one job of the studio: ``python -m dunnage.serving.worker MEMORY_MB``.

It loads what most jobs need, if there is time, and waits for one line with a folder, a module and its arguments. It
runs the module as Python's ``-m`` does, within a limit of memory, and ends when the studio that started it ends: the
studio holds the other end of its standard input.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import runpy
import select
import signal
import sys
import threading


def _follow() -> None:
    """End with the studio: its end of the pipe closes, however it ends. What this process started ends too."""
    while os.read(0, 4096):
        continue
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold private rows
    with contextlib.suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]) << 20, resource.RLIM_INFINITY))
    if not select.select([0], [], [], 0)[0]:  # there is time before the first job
        for name in ("advising.rows", "auditing.run", "planning.packing", "serving.survey", "showing.text"):
            importlib.import_module(f"dunnage.{name}")
        importlib.import_module("numba")
        list(importlib.import_module("dunnage.mechanisms").MECHANISMS.values())  # each is loaded when looked up
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1 << 16)
        if not part:
            return  # the studio ended before there was a job
        line += part
    folder, module, *arguments = json.loads(line)
    threading.Thread(target=_follow, daemon=True).start()
    os.chdir(folder)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
