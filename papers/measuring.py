# SPDX-License-Identifier: Apache-2.0
"""Do the jobs of a reproduction with several processes, and summarise what they measure."""

from __future__ import annotations

import hashlib
import math
import multiprocessing
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import astuple, dataclass, make_dataclass
from functools import cache, cached_property
from importlib import resources
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

import numpy as np

from dunnage.arrays import FloatArray

Todo = TypeVar("Todo")
Done = TypeVar("Done")


@cache
def written(paper: str) -> dict[str, Any]:
    """Read what is written of a paper: its sentences, its tables, and how much is measured; lists as tuples."""

    def fixed(value: Any) -> Any:
        if isinstance(value, dict):
            return {int(key) if key.isdigit() else key: fixed(item) for key, item in value.items()}
        return tuple(map(fixed, value)) if isinstance(value, list) else value

    return fixed(tomllib.loads((resources.files("papers") / f"{paper}.toml").read_text(encoding="utf-8")))


def efforts(module: str, table: str = "effort") -> tuple[Any, Any, Any]:
    """Return the class of a module's efforts, the full one, and the quick one, of which only differences are written.

    The class belongs to the module, where other processes find it.
    """
    given = written(module.split(".")[-1].split("_")[0])[table]
    kind = make_dataclass("Effort", list(given["full"]), frozen=True, namespace={"__module__": module})
    return kind, kind(**given["full"]), kind(**{**given["full"], **given["quick"]})


class Run(SimpleNamespace):
    """What was measured in one case, by name."""

    def but(self, **other: Any) -> Run:
        return type(self)(**{**vars(self), **other})


def in_parallel(
    work: Callable[[Todo], list[Done]], todo: Sequence[Todo], *, workers: int, warm_up: Callable[[], None]
) -> list[Done]:
    """Do jobs with several processes and put what they return into one list, with progress on stderr."""
    # A fresh process each, for a forked one may inherit locks of other threads.
    context = multiprocessing.get_context("spawn")
    found: list[Done] = []
    start, total, live = time.monotonic(), len(todo), sys.stderr.isatty()
    with ProcessPoolExecutor(max_workers=workers, mp_context=context, initializer=warm_up) as pool:
        waiting = [pool.submit(work, job) for job in todo]
        for number, done in enumerate(as_completed(waiting), start=1):
            found += done.result()
            if live or number % max(1, total // 10) == 0 or number == total:
                end = "\r" if live and number < total else "\n"
                seconds = time.monotonic() - start
                print(f"{number} of {total} jobs done, {seconds:.0f} s", end=end, file=sys.stderr, flush=True)
    return found


def seed_of(job: Any) -> int:
    """Return a seed of a job's own, the same in every process."""
    return int.from_bytes(hashlib.sha256(repr(astuple(job)).encode()).digest())


def mean_sd(values: FloatArray) -> tuple[float, float]:
    """Return mean and sample standard deviation; nan for what is not known."""
    if not len(values):
        return math.nan, math.nan
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def mean_interval(values: FloatArray) -> tuple[float, float]:
    """Return a mean and half the width of its 95 % interval (Student's); nan for what is not known."""
    from scipy import stats

    mean, sd = mean_sd(values)
    if math.isnan(sd):
        return mean, sd
    return mean, float(stats.t.ppf(0.975, len(values) - 1)) * sd / math.sqrt(len(values))


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of jobs, sorted by what tells their kinds apart."""

    runs: Sequence[Any]
    effort: Any

    KIND: ClassVar[tuple[str, ...]] = ()  # fields of a run that tell its kind

    @cached_property
    def _by_kind(self) -> dict[tuple[object, ...], list[Any]]:
        found: dict[tuple[object, ...], list[Any]] = {}
        for run in self.runs:
            found.setdefault(tuple(getattr(run, name) for name in self.KIND), []).append(run)
        return found

    def usual(self) -> dict[str, object]:
        """Return what a kind is where nothing else is said."""
        return {}

    def of_kind(self, **kind: object) -> list[Any]:
        kind = self.usual() | kind
        return self._by_kind.get(tuple(kind[name] for name in self.KIND), [])

    def values(self, column: str, **kind: Any) -> FloatArray:
        return column_of(self.of_kind(**kind), column)

    def mean(self, column: str, **kind: Any) -> float:
        return mean_sd(self.values(column, **kind))[0]

    def row(self, columns: Iterable[str], **kind: Any) -> dict[str, object]:
        """Return means and standard deviations of some measures as a line of a table."""
        return {**kind, **means(mean_sd, {column: self.values(column, **kind) for column in columns})}


def column_of(runs: Iterable[Any], column: str) -> FloatArray:
    return np.array([getattr(run, column) for run in runs], dtype=np.float64)


def means(summary: Callable[[FloatArray], tuple[float, float]], values: Mapping[str, FloatArray]) -> dict[str, object]:
    """Return a mean of each column, and beside it (``_sd``) how far it spreads."""
    line: dict[str, object] = {}
    for name, own in values.items():
        line[name], line[f"{name}_sd"] = summary(own)
    return line
