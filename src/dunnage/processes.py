# SPDX-License-Identifier: Apache-2.0
"""Work in several processes that start afresh, and that never outlive the process they work for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from dunnage.errors import DunnageError

STAGES = "DUNNAGE_PROGRESS"  # in the environment of a command: print every stage as a line, for programs
EARLY = "early: "  # begins a line with a part of what a job will return
Item = TypeVar("Item")
Result = TypeVar("Result")
_work: Callable[[Any], Any] | None = None


def in_parallel(
    items: Sequence[Item],
    work: Callable[[Item], Result],  # pickled once for each process
    jobs: int,
    lost: DunnageError,  # raised if a process is ended from outside
) -> Generator[tuple[Item, Result], None, None]:
    """Yield each item with its result, in the order they finish; an interruption leaves the rest undone."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(items)), mp_context=context, initializer=_begin, initargs=(work,))
    try:
        futures = {pool.submit(_do, item): item for item in items}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        raise lost from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(work: Callable[[Any], Any]) -> None:
    """Keep the work of this process, and end it with the process it works for: otherwise it would wait for ever."""
    import multiprocessing
    import os
    import signal
    import threading

    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interruption ends it at once
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _do(item: Any) -> Any:
    assert _work is not None
    return _work(item)
