# SPDX-License-Identifier: Apache-2.0
"""Sweeping: what a goal has to offer, and the measuring of many points, in parallel and so that it can be resumed.

A goal names its candidates and measures one of them once; everything else is here. Each point is measured several
times with randomness of its own: noise, order of rows, generated data. Nothing is seeded, and no draw is left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Generic, TypeVar

from dunnage._version import __version__
from dunnage.advising.frontier import DATA, Failure, Measure, Point, Table
from dunnage.advising.policies import BasePolicy
from dunnage.errors import DunnageError, NoPlanError, OutputError
from dunnage.exact import exact
from dunnage.mechanisms.base import Mechanism
from dunnage.policy import Policy

POINTS_FILE = "points.jsonl"
STORE_ENDING = ".partial"
ON = ("auto", "data", "generated")
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Asked:
    data: Any = field(repr=False)  # Path of the private rows; from Python also a frame
    base: BasePolicy  # The policy to begin with
    period: str | None = None  # Which period of the data, if the policy tells periods apart
    capacity: tuple[str, ...] = ()  # What a truck holds, one text for each quantity: `("500kg",)`
    by: str | None = None  # Public column whose values never share a truck
    city: Path | None = None  # Folder or feed of the city a fleet is sized in
    # What to measure on: `data`, `generated`, or `auto` (k-anonymous mechanisms on the data, the others on generated
    # ones)
    on: str = "auto"
    # How many records generated data have, and how many true ones are measured on at most; None takes what may be told,
    # and some of many
    size: int | None = None
    draws: int = 7  # How many times each point is measured
    quick: bool = False  # Whether fewer candidates are enough


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """What a goal opened: goals may derive their own, with more. It travels to other processes, so it must pickle."""

    asked: Asked  # What was asked for
    data: Any = field(repr=False)  # The rows, or the fleet, as the goal reads them
    # Digest of the private rows and of all other files read, so that another run can tell that they are the same
    digest: str


@dataclass(frozen=True, kw_only=True)
class Task:
    name: str  # name, mechanism, parameters, plan: as of a :class:`~dunnage.advising.frontier.Point`
    mechanism: str
    parameters: Table
    plan: Table = field(default_factory=dict)
    guarantee: str = ""  # guarantee, basis: the promise in words, and what it rests on; empty until it was looked up
    basis: str = ""
    on: str = DATA  # What it is measured on: `data`, `sample` or `generated`

    @classmethod
    def of(cls, kind: type[Mechanism], words: str, parameters: Table, plan: Table | None = None) -> Task:
        return cls(name=f"{kind.name} {words}", mechanism=kind.name, parameters=parameters, plan=plan or {})

    @property
    def epsilon(self) -> float:
        return float(exact(str(self.parameters["epsilon"])))

    def under(self, policy: Policy) -> Policy:
        table = {"name": self.mechanism, **self.parameters}
        return replace(policy, mechanism=table, document={**policy.document, "mechanism": table})


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What one independent measurement of a task gave."""

    cost: float  # cost, risk: in the goal's unit, above the decision without privacy; and the attacker's probability
    risk: float
    # cost_step, risk_step: the least by which two draws that differ do so: one truck of the optimum's, `1 / optimum`. 0
    # where every draw must come out the same
    cost_step: float = 0.0
    risk_step: float = 0.0
    # How far another measurement may be off for reasons that do not average out over draws: a search that finds less on
    # a busy machine
    risk_reach: float = 0.0
    cost_least: float = -math.inf  # No cost can be below: 0 where the decision without privacy is the best there is
    figures: Mapping[str, float] = field(default_factory=dict)  # More figures, to be shown


@dataclass(frozen=True, kw_only=True)
class Reference:
    # risk_without_privacy, risk_of_chance: what the attacker gets with the true table, and without any release
    risk_without_privacy: float
    risk_of_chance: float
    cost_baseline: str  # In words, the decision without privacy
    says: tuple[str, ...] = ()  # Sentences of the goal's own: what was left out, measured on a sample, and so on


Tasks = tuple[Sequence[Task], Sequence[Failure]]
C = TypeVar("C", bound=Case)


def mechanism_table(case: Case, point: Point) -> Mapping[str, Table]:
    return {"mechanism": {"name": point.mechanism, **point.parameters}}


@dataclass(frozen=True, kw_only=True)
class Goal(Generic[C]):
    """What privacy may cost something in, and how that is measured; its functions pickle."""

    name: str  # `trucks`, `shuttles`, `distortion` or `error`
    cost_name: str  # What the cost is: `trucks`
    cost_unit: str  # What a cost of 5 % is 5 % of: `more trucks`
    risk_name: str  # What the risk is: `truck linkage`
    # Checks what was asked for and reads the data; raises a UserError that says what to give or fill in
    open: Callable[[Asked], C]
    tasks: Callable[[C], Tasks]  # Names the candidates that fit the data, and those that do not and would be missed
    # Measures a task once, with randomness of its own. Spends nothing and writes nothing
    measure: Callable[[C, Task], Drawn]
    reference: Callable[[C], Reference]  # Says what costs and risks are compared with
    # Gives the tables that a point replaces in the policy: `{"mechanism": {"name": ..., "k": 5}}`
    tables: Callable[[C, Point], Mapping[str, Table]] = mechanism_table
    next_step: Callable[[C, Point], str] | None = None  # Says how to plan on a release of a point
    default_max_cost: float = 0.05  # If nothing is asked for
    draw_seconds: float = math.inf  # After how long one measurement is given up


def measured(goal: Goal[C], case: C, task: Task) -> Point:
    start = time.monotonic()
    draws = []
    for _ in range(case.asked.draws):
        try:
            with _alarm(goal.draw_seconds):
                draws.append(goal.measure(case, task))
        except _TookTooLong:
            raise NoPlanError(
                f"one measurement takes more than {goal.draw_seconds:g} seconds, so it was given up. Measure on fewer "
                "records: --size 500, say."
            ) from None
    names = dict.fromkeys(name for drawn in draws for name in drawn.figures)
    return Point(
        name=task.name,
        mechanism=task.mechanism,
        parameters=dict(task.parameters),
        plan=dict(task.plan),
        cost=Measure.of(
            [drawn.cost for drawn in draws],
            step=max(drawn.cost_step for drawn in draws),
            least=min(drawn.cost_least for drawn in draws),
        ),
        risk=Measure.of(
            [drawn.risk for drawn in draws],
            step=max(drawn.risk_step for drawn in draws),
            reach=max(drawn.risk_reach for drawn in draws),
            least=0.0,
            most=1.0,
        ),
        guarantee=task.guarantee,
        basis=task.basis,
        measured_on=task.on,
        draws=len(draws),
        figures={name: fmean(drawn.figures[name] for drawn in draws if name in drawn.figures) for name in names},
        seconds=time.monotonic() - start,
    )


class _TookTooLong(BaseException):
    """Time is up. It is no error, so that nothing on the way takes it for one of its own."""


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Interrupt what takes too long, where the system can: in the main thread, if no other alarm is set."""
    import signal
    import threading

    able = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not able or math.isinf(seconds) or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def ring(number: int, frame: object) -> None:
        raise _TookTooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- Many points ---------------------------------------------------------------------------------------------------

Measuring = Callable[[Task], Point]
_measuring: Measuring | None = None


def sweep(
    tasks: Sequence[Task],  # What to measure
    measure: Measuring,  # Measures one of them. With several jobs it is pickled once for each process
    *,
    jobs: int = 1,  # How many processes; 1 measures in this one
    progress: Progress | None = None,  # Called with `12 of 40: partition k=5`
    store: Store | None = None,  # Keeps what is done, and knows what was done before
) -> tuple[tuple[Point, ...], tuple[Failure, ...]]:
    """Measure many tasks, in the order they finish; what could not be measured is told, and does not end it."""
    tell, store = progress or (lambda line: None), store or Store.nowhere()
    found: dict[str, Point | Failure] = {task.name: store.done[task.name] for task in tasks if task.name in store.done}
    todo = [task for task in tasks if task.name not in found]
    if found and todo:
        tell(f"{len(found)} of {len(tasks)} were done before")
    one_by_one = (attempted(measure, task) for task in todo)
    results = one_by_one if jobs <= 1 or len(todo) <= 1 else _in_parallel(todo, measure, jobs)
    with contextlib.closing(results):
        for result in results:
            found[result.name] = result
            store.keep(result)
            tell(f"{len(found)} of {len(tasks)}: {result.name}")
    ordered = [found[task.name] for task in tasks]
    return (
        tuple(item for item in ordered if isinstance(item, Point)),
        tuple(item for item in ordered if isinstance(item, Failure)),
    )


def attempted(measure: Measuring, task: Task) -> Point | Failure:
    """Measure a task; a refusal is a result like any other."""
    try:
        return measure(task)
    except DunnageError as error:
        return Failure(name=task.name, why=reason(error))


def reason(error: DunnageError) -> str:
    """Return what an error says, in one line and without the place of a policy that nobody wrote."""
    problems = getattr(error, "problems", None)
    text = "; ".join(str(problem) for problem in problems) if problems else str(error)
    return " ".join(text.split())


def _in_parallel(tasks: Sequence[Task], measure: Measuring, jobs: int) -> Generator[Point | Failure, None, None]:
    """Measure in processes that start afresh; an interruption leaves what has not begun undone."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    pool = ProcessPoolExecutor(
        min(jobs, len(tasks)), mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(measure,)
    )
    try:
        for future in as_completed([pool.submit(_attempt_here, task) for task in tasks]):
            yield future.result()
    except BrokenProcessPool:
        raise DunnageError(
            "a process that measured was ended from outside, perhaps for want of memory. Run the same command again: "
            "it continues where it stopped; --jobs 1 needs less memory."
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(measure: Measuring) -> None:
    """Keep what a process is to measure with; it ends at once with an interruption, and with the process it works for.

    Otherwise it would wait for work for ever when that one is killed.
    """
    import multiprocessing
    import signal
    import threading

    global _measuring
    _measuring = measure
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _attempt_here(task: Task) -> Point | Failure:
    assert _measuring is not None
    return attempted(_measuring, task)


# --- What is done is kept ------------------------------------------------------------------------------------------


def digest_of(case: Case, goal: str) -> str:
    asked = case.asked
    options = [asked.period, asked.capacity, asked.by, str(asked.city), asked.on, asked.size, asked.draws, asked.quick]
    content = json.dumps([__version__, goal, case.digest, asked.base.text, options])
    return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Store:
    """A private folder in which finished points wait until all are."""

    folder: Path | None  # Where; None keeps nothing
    done: Mapping[str, Point | Failure]  # What an earlier run of the same kind finished
    digest: str = ""  # Of the run whose results are kept

    @classmethod
    def nowhere(cls) -> Store:
        return cls(None, {})

    @classmethod
    def beside(cls, out: str | os.PathLike[str]) -> Path:
        path = Path(os.path.abspath(out))
        return path.with_name(path.name + STORE_ENDING)

    @classmethod
    def open(cls, folder: Path, digest: str, *, force: bool = False) -> Store:
        if os.path.lexists(folder):
            before = _read_points(folder)
            if before is not None and before[0] == digest:
                return cls(folder, before[1], digest)
            if before is None or not force:
                what = "is no folder of points" if before is None else "holds what another run of advise has measured"
                remedy = "Move it away." if before is None else "Run that again, or replace it with --force."
                raise OutputError(f"{folder} {what}. {remedy}")
            shutil.rmtree(folder)
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise OutputError(f"{folder} cannot be made: {error.strerror}. Choose another place.") from None
        store = cls(folder, {}, digest)
        store._append({"format": 1, "kind": "points", "digest": digest}, first=True)
        return store

    def keep(self, result: Point | Failure) -> None:
        """Keep a result, so that it is there after a crash of the machine."""
        if self.folder is None:
            return
        self._append({"failed" if isinstance(result, Failure) else "point": result.model_dump(mode="json")})

    def _append(self, content: Table, *, first: bool = False) -> None:
        """Add a line to the file that this run opened: never to one that another run put in its place."""
        assert self.folder is not None
        path = self.folder / POINTS_FILE
        try:
            flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT | os.O_EXCL if first else 0)
            with os.fdopen(os.open(path, flags, 0o600), "ab+") as stream:
                if not first:
                    stream.seek(0)
                    head = next((line for line in stream if line.strip()), b"{}")
                    try:
                        own = json.loads(head).get("digest") == self.digest
                    except (ValueError, AttributeError):
                        own = False
                    if not own:  # what is written to one that is removed later is lost with it
                        raise OutputError(f"{self.folder} {_REPLACED}")
                # A line before it may have been cut off.
                stream.write(b"\n" + json.dumps(content, ensure_ascii=False, allow_nan=False).encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
        except FileNotFoundError:
            raise OutputError(f"{self.folder} {_REPLACED}") from None
        except OSError as error:
            raise OutputError(f"{self.folder} cannot be written: {error.strerror}. Choose another place.") from None

    def remove(self) -> None:
        """Remove the folder, when everything it held is in its place."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


_REPLACED = (
    "was removed or replaced by another run of advise while this one measured. Choose another place for one of them."
)


def _read_points(folder: Path) -> tuple[str, dict[str, Point | Failure]] | None:
    """Read the digest and the results of a store; None if it is none. A last line that was cut off is no result."""
    if folder.is_symlink() or not folder.is_dir() or {path.name for path in folder.iterdir()} - {POINTS_FILE}:
        return None
    path = folder / POINTS_FILE
    if not path.exists():
        return "", {}  # made, and interrupted before its first line
    lines = []
    with contextlib.suppress(OSError):
        for text in path.read_bytes().split(b"\n"):
            with contextlib.suppress(ValueError):
                content = json.loads(text)
                lines += [content] if isinstance(content, dict) else []
    if not lines:
        return "", {}
    if lines[0].get("kind") != "points":
        return None
    done: dict[str, Point | Failure] = {}
    for line in lines[1:]:
        with contextlib.suppress(TypeError, KeyError, ValueError):
            kind: type[Point | Failure] = Point if "point" in line else Failure
            made = kind.model_validate(line["point" if "point" in line else "failed"])
            done[made.name] = made
    return str(lines[0].get("digest")), done
