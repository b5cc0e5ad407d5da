# SPDX-License-Identifier: Apache-2.0
"""Sweeping: what a goal is, and measuring many points, in parallel and so that it can be resumed.

A goal names its candidates and measures one of them once; everything else is here. Each point is measured several
times with independent randomness: noise, order of rows, generated data. Nothing is seeded, and no draw is left out. A
point is measured fewer times if its time is up or nothing in it is left to chance, and more often if that is cheap. The
clock is read between measurements: nothing interrupts one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any, Generic, TypeVar

from dunnage._version import __version__
from dunnage.advising.frontier import DATA, SAME, Failure, Measure, Point, Table
from dunnage.auditing.findings import filled
from dunnage.errors import DunnageError, OutputError, PolicyError, TaskError
from dunnage.exact import exact
from dunnage.mechanisms.base import Mechanism
from dunnage.model.policy import Policy, Written, is_for_devices
from dunnage.processes import in_parallel
from dunnage.text import Progress, several

_HEADER = re.compile(r"^\s*\[\[?\s*(?P<name>[^\]]+?)\s*\]\]?\s*(#.*)?$")
_FILE = re.compile(r'^(\s*[\w"\'.-]+\s*=\s*)(?P<quote>["\'])(?P<name>[^"\'\\]*)(?P=quote)(.*)$')
_FILE_KEYS = ("hierarchy", "edges", "stops", "modes")
_BLANK: tuple[object, ...] = ("", [])


@cache
def _sentences() -> dict[str, str]:
    return tomllib.loads((files("dunnage.advising") / "sentences.toml").read_text(encoding="utf-8"))


def words(key: str, **facts: object) -> str:
    return filled(_sentences()[key], facts)


@dataclass(frozen=True, kw_only=True)
class BasePolicy(Written):
    """A policy as it was written, with or without a mechanism, which advice chooses."""

    @classmethod
    def of(cls, policy: Policy) -> BasePolicy:
        return cls(text=policy.to_toml(), document=policy.document, path=policy.path)

    @property
    def for_devices(self) -> bool:
        return is_for_devices(self.document)

    @property
    def blank_kinds(self) -> tuple[str, ...]:
        tables = self.document.get("mechanisms")
        kinds = tables.items() if isinstance(tables, Mapping) else ()
        return tuple(
            str(name) for name, table in kinds if isinstance(table, Mapping) and table.get("epsilon") in _BLANK
        )

    @property
    def about(self) -> str:
        if self.for_devices:
            return "devices"
        return "trips" if "trip" in self.document else "rows"

    @property
    def dataset(self) -> str:
        return str(self.document.get("dataset", ""))

    def policy(self, mechanism: Table) -> Policy:
        return Policy.from_dict({**self.document, "mechanism": dict(mechanism)}, path=self.path)

    def text_with(self, tables: Mapping[str, Table], *, place: Path | None = None, notes: Sequence[str] = ()) -> str:
        """Write the policy for another folder, with some top tables replaced; comments outside those tables stay."""
        import tomli_w

        base = Path(os.path.abspath(self.path.parent if self.path else Path()))
        moved: dict[str, str] = {}

        def renamed(table: Any) -> Any:  # with paths of files relative to the new place
            if not isinstance(table, Mapping):
                return table
            for key in _FILE_KEYS:
                if isinstance(name := table.get(key), str):
                    target = os.path.normpath(base / name)
                    if place is not None and not Path(name).is_absolute():
                        target = os.path.relpath(target, os.path.abspath(place))
                    moved[name] = Path(target).as_posix()
            return {key: moved.get(item, item) if key in _FILE_KEYS else item for key, item in table.items()}

        wanted = {**self.document, **tables}
        if "city" in wanted:
            wanted["city"] = renamed(wanted["city"])
        if isinstance(columns := wanted.get("attributes"), Mapping):
            wanted["attributes"] = {name: renamed(table) for name, table in columns.items()}
        kept: list[str] = []
        inside = False  # one of those tables; comments just before the next table stay
        for line in self.text.splitlines():
            if (header := _HEADER.match(line)) is not None:
                inside = header["name"].split(".")[0].strip().strip("\"'") in tables
            match = _FILE.match(line)
            key = match[1].split("=")[0].strip().split(".")[-1] if match else ""
            if match and match["name"] in moved and key in _FILE_KEYS:
                line = f'{match[1]}"{moved[match["name"]]}"{match[4]}'
            kept += [] if inside else [line]
        unchanged = "\n".join(kept).strip()
        text = f"{unchanged}\n\n{tomli_w.dumps({name: wanted[name] for name in tables})}"
        if policy_document_or_none(text) != policy_document_or_none(tomli_w.dumps(wanted)):
            text = tomli_w.dumps(wanted)  # an unusual way of writing: better to lose the comments than the meaning
        head = "".join(f"# {line}\n" if line else "#\n" for line in notes)
        return f"{head}\n{text}" if head else text


def policy_document_or_none(text: str) -> Mapping[str, object] | None:
    try:
        return Written.from_text(text).document
    except PolicyError:
        return None


MORE_DRAWS, MORE_SECONDS = 4, 5.0
"""A point on all rows varies only with the order of rows and with searches: if its draws differ, up to four times as
many narrow its interval, as long as they take less CPU time than this."""
POINTS_FILE = "points.jsonl"
CACHE_ENDING = ".partial"
ON = ("auto", "data", "generated")
Result = Point | Failure


@dataclass(frozen=True, kw_only=True)
class AdviceRequest:
    data: Any = field(repr=False)  # path of the private rows; from Python also a frame
    base: BasePolicy  # the policy to begin with
    period: str | None = None
    capacity: tuple[str, ...] = ()  # what a truck holds, one text for each quantity: ("500kg",)
    by: str | None = None  # public column; different values never share a truck
    city: Path | None = None  # folder or feed of the city a fleet is sized in
    on: str = "auto"  # k-anonymous mechanisms on the data, others on generated rows; or all on one of the two
    # Number of generated records, and largest number of true ones; None takes the number that may be published, and
    # a sample of many.
    size: int | None = None
    draws: int = 7  # how many times each point is measured
    quick: bool = False  # whether fewer candidates are enough

    def digest(self, goal: str, data_digest: str) -> str:
        """Identify a run: two runs with the same digest can share their measurements."""
        options = [self.period, self.capacity, self.by, str(self.city), self.on, self.size, self.draws, self.quick]
        content = json.dumps([__version__, goal, data_digest, self.base.text, options])
        return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """What a goal is measured on; goals derive their own. It goes to other processes, so it can be pickled."""

    request: AdviceRequest
    digest: str  # of the private rows and of all other files read
    public_size: bool = False  # whether the number of generated records comes from the owner, not from the data
    private_says: tuple[str, ...] = field(default=(), repr=False)  # facts of the true rows, for the owner alone

    @property
    def unit(self) -> str:
        return "record"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    name: str  # name, mechanism, parameters, plan: as of a point
    mechanism: str
    parameters: Table
    plan: Table = field(default_factory=dict)
    guarantee: str = ""  # guarantee, basis: of the promise; empty until it is known
    basis: str = ""
    on: str = DATA  # what it is measured on: "data", "sample" or "generated"
    exact: bool = False  # whether two draws that agree are enough: nothing is noisy, and no row is left out

    @classmethod
    def of(cls, kind: type[Mechanism], label: str, parameters: Table, plan: Table | None = None) -> Candidate:
        return cls(name=f"{kind.name} {label}", mechanism=kind.name, parameters=parameters, plan=plan or {})

    @property
    def epsilon(self) -> float:
        return float(exact(str(self.parameters["epsilon"])))

    def under(self, policy: Policy) -> Policy:
        table = {"name": self.mechanism, **self.parameters}
        return replace(policy, mechanism=table, document={**policy.document, "mechanism": table})


Candidates = tuple[Sequence[Candidate], Sequence[Failure]]
"""Candidates that fit the data, and those that do not fit but that a reader would expect."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    cost: float  # in the goal's unit, above the decision without privacy
    risk: float  # the attacker's probability
    # The smallest difference between two draws that differ: one truck of the optimum. 0 if all must be the same.
    cost_step: float = 0.0
    risk_step: float = 0.0
    # How far another measurement may be off for reasons that do not average out, such as a slower machine.
    risk_reach: float = 0.0
    min_cost: float = -math.inf  # 0 where the decision without privacy is the best there is
    num_records: int | None = None  # rows, trips or vehicles that it was measured on
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reference:
    risk_without_privacy: float  # risk with the true table
    risk_of_chance: float  # risk without any release
    cost_baseline: str  # the decision without privacy, in words
    says: tuple[str, ...] = ()  # sentences of the goal: what was left out, measured on a sample, and so on


def allowed(
    candidates: Iterable[Candidate], promised: Callable[[Candidate], Candidate], *, by_mechanism: bool = False
) -> Candidates:
    """Return the candidates that the policy allows, with their promises, and why it refuses others, once each."""
    fitting: list[Candidate] = []
    failed: dict[tuple[str, str], Failure] = {}
    for candidate in candidates:
        try:
            fitting.append(promised(candidate))
        except (PolicyError, TaskError) as error:
            name, why = candidate.mechanism if by_mechanism else candidate.name, reason(error)
            failed.setdefault((name, why), Failure(name=name, why=why))
    return fitting, list(failed.values())


S = TypeVar("S", bound=Subject)


def general_help(subject: Subject, points: Sequence[Point]) -> str:
    return words("help rows")


def mechanism_table(subject: Subject, point: Point) -> Mapping[str, Table]:
    return {"mechanism": {"name": point.mechanism, **point.parameters}}


@dataclass(frozen=True, kw_only=True)
class Goal(Generic[S]):
    """A unit that privacy may cost something in, and the functions that measure it; they can be pickled."""

    cost_name: str  # "trucks"
    cost_unit: str  # what a cost of 5 % is 5 % of: "more trucks"
    risk_name: str  # "truck linkage"
    open: Callable[[AdviceRequest], S]  # checks a request and reads the data, or says what is missing
    candidates: Callable[[S], Candidates]
    measure: Callable[[S, Candidate], Draw]  # once, with independent randomness; spends and writes nothing
    reference: Callable[[S], Reference]  # what costs and risks are compared with
    tables: Callable[[S, Point], Mapping[str, Table]] = mechanism_table  # that a point replaces in the policy
    next_step: Callable[[S, Point], str] | None = None  # how to plan on a release of a point
    default_max_cost: float = 0.05  # if the owner gives no limit
    cost_of_nothing: float | None = None  # of planning on an empty release; a point that costs as much is useless
    help: Callable[[S, Sequence[Point]], str] = general_help  # what would lower the costs of the measured points
    point_seconds: float = math.inf  # CPU time after which a point is not measured once more


def measure_point(goal: Goal[S], subject: S, candidate: Candidate) -> Point:
    start, used = time.monotonic(), time.process_time()
    draws: list[Draw] = []
    wanted, cheap = subject.request.draws, True
    while len(draws) < wanted or (candidate.exact and cheap and len(draws) < MORE_DRAWS * wanted):
        draws.append(goal.measure(subject, candidate))
        cheap = time.process_time() - used < MORE_SECONDS
        reach = max(SAME, *(draw.risk_reach for draw in draws))
        agree = abs(draws[0].cost - draws[-1].cost) <= SAME and abs(draws[0].risk - draws[-1].risk) <= reach
        if (candidate.exact and len(draws) == 2 and agree) or time.process_time() - used > goal.point_seconds:
            break
    names = dict.fromkeys(name for draw in draws for name in draw.figures)
    cost_step, risk_step = max(draw.cost_step for draw in draws), max(draw.risk_step for draw in draws)
    reach, min_cost = max(draw.risk_reach for draw in draws), min(draw.min_cost for draw in draws)
    cost = Measure.of([draw.cost for draw in draws], step=cost_step, least=min_cost)
    return Point(
        name=candidate.name,
        mechanism=candidate.mechanism,
        parameters=dict(candidate.parameters),
        plan=dict(candidate.plan),
        cost=cost,
        risk=Measure.of([draw.risk for draw in draws], step=risk_step, reach=reach, least=0.0, most=1.0),
        guarantee=candidate.guarantee,
        basis=candidate.basis,
        measured_on=candidate.on,
        num_records=max((draw.num_records for draw in draws if draw.num_records is not None), default=None),
        draws=len(draws),
        figures={name: fmean(draw.figures[name] for draw in draws if name in draw.figures) for name in names},
        seconds=time.monotonic() - start,
        useless=goal.cost_of_nothing is not None and cost.value >= goal.cost_of_nothing - SAME,
    )


# --- Many points ---------------------------------------------------------------------------------------------------

Measuring = Callable[[Candidate], Point]
_LOST = (
    "a measuring process was ended from outside, perhaps because memory ran out. Run the same command again: it "
    "continues where it stopped. --jobs 1 needs less memory."
)


def sweep(
    candidates: Sequence[Candidate],
    measure: Measuring,  # with several jobs, pickled once for each process
    *,
    jobs: int = 1,  # processes; 1 measures in this one
    progress: Progress | None = None,  # called with "12 of 40: partition k=5"
    cache: Cache | None = None,  # keeps finished points, and has those of an earlier run
) -> tuple[tuple[Point, ...], tuple[Failure, ...]]:
    """Measure many candidates; those that cannot be measured are listed and do not end the sweep."""
    tell, before, start = progress or (lambda line: None), cache.done if cache else {}, time.monotonic()
    results = {candidate.name: before[candidate.name] for candidate in candidates if candidate.name in before}
    todo = [candidate for candidate in candidates if candidate.name not in results]
    if results and todo:
        tell(f"{len(results)} of {len(candidates)} were measured before")
    elif todo:
        tell(f"measuring {len(todo)} policies")
    work = partial(attempt, measure)
    finished = ((candidate, work(candidate)) for candidate in todo)
    if jobs > 1 and len(todo) > 1:
        finished = in_parallel(todo, work, jobs, DunnageError(_LOST))
    with contextlib.closing(finished):
        for _, result in finished:
            results[result.name] = result
            if cache is not None:
                cache.keep(result)
            num_left = len(candidates) - len(results)
            minutes = (time.monotonic() - start) / (len(todo) - num_left) * num_left / 60
            left = f"; about {several(round(minutes), 'minute')} left" if minutes >= 1 else ""
            tell(f"{len(results)} of {len(candidates)}: {result.name}{left}")
    ordered = [results[candidate.name] for candidate in candidates]
    points = tuple(item for item in ordered if isinstance(item, Point))
    return points, tuple(item for item in ordered if isinstance(item, Failure))


def attempt(measure: Measuring, candidate: Candidate) -> Result:
    """Measure a candidate; a refusal is a result like any other."""
    try:
        return measure(candidate)
    except DunnageError as error:
        return Failure(name=candidate.name, why=reason(error))


def reason(error: DunnageError) -> str:
    """Return what an error says, in one line and without the path of a policy that nobody wrote."""
    problems = getattr(error, "problems", None)
    text = "; ".join(str(problem) for problem in problems) if problems else str(error)
    return " ".join(text.split())


# --- Finished points are kept --------------------------------------------------------------------------------------


def cache_folder(out: str | os.PathLike[str]) -> Path:
    path = Path(os.path.abspath(out))
    return path.with_name(path.name + CACHE_ENDING)


@dataclass(frozen=True, eq=False)
class Cache:
    """A private folder for finished points until all are done: one JSON line each, after one that names the run."""

    folder: Path
    digest: str  # of the run
    done: Mapping[str, Result]  # results of an earlier run with the same digest

    @classmethod
    def open(cls, folder: Path, digest: str, *, done: Mapping[str, Result] | None = None, force: bool = False) -> Cache:
        """Open the folder of a run; ``done`` are results of the same run that are kept elsewhere."""
        if os.path.lexists(folder):
            before = _read_points(folder)
            if before is not None and before[0] == digest:
                return cls(folder, digest, {**(done or {}), **before[1]})
            if before is None or not force:
                what = "is not a folder of points" if before is None else "contains the points of another run of advise"
                remedy = "Move it elsewhere." if before is None else "Finish that run, or replace it with --force."
                raise OutputError(f"{folder} {what}. {remedy}")
            shutil.rmtree(folder)
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise OutputError(f"{folder} cannot be created: {error.strerror}. Choose another place.") from None
        cache = cls(folder, digest, done or {})
        cache._append({"format": 1, "kind": "points", "digest": digest}, first=True)
        return cache

    def keep(self, result: Result) -> None:
        """Keep a result so that it survives a crash of the machine."""
        self._append({"failed" if isinstance(result, Failure) else "point": result.model_dump(mode="json")})

    def _append(self, content: Table, *, first: bool = False) -> None:
        """Add a line to the file of this run, never to one that another run put in its place."""
        replaced = f"{self.folder} was removed or replaced by another run of advise while this one measured. "
        replaced += "Choose another place for one of them."
        try:
            flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT | os.O_EXCL if first else 0)
            with os.fdopen(os.open(self.folder / POINTS_FILE, flags, 0o600), "ab+") as stream:
                stream.seek(0)
                if not first and next(_lines(stream.read()), {}).get("digest") != self.digest:
                    raise OutputError(replaced)
                # The line before may have been cut off.
                stream.write(b"\n" + json.dumps(content, ensure_ascii=False, allow_nan=False).encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
        except FileNotFoundError:
            raise OutputError(replaced) from None
        except OSError as error:
            raise OutputError(f"{self.folder} cannot be written: {error.strerror}. Choose another place.") from None


def _lines(content: bytes) -> Iterator[dict[str, Any]]:
    """Read JSON lines; a line that was cut off is skipped."""
    for text in content.split(b"\n"):
        with contextlib.suppress(ValueError):
            line = json.loads(text)
            if isinstance(line, dict):
                yield line


def _read_points(folder: Path) -> tuple[str, dict[str, Result]] | None:
    """Read the digest and the results of a cache; None if the folder is not a cache."""
    if folder.is_symlink() or not folder.is_dir() or {path.name for path in folder.iterdir()} - {POINTS_FILE}:
        return None
    try:
        lines = list(_lines((folder / POINTS_FILE).read_bytes()))
    except OSError:
        lines = []
    if not lines:
        return "", {}  # created, and interrupted before its first line
    if lines[0].get("kind") != "points":
        return None
    done: dict[str, Result] = {}
    for line in lines[1:]:
        with contextlib.suppress(TypeError, KeyError, ValueError):
            result = Point.model_validate(line["point"]) if "point" in line else Failure.model_validate(line["failed"])
            done[result.name] = result
    return str(lines[0].get("digest")), done
