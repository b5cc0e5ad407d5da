# SPDX-License-Identifier: Apache-2.0
"""Fioretto, Lee, Van Hentenryck 2018, section 10: fleets sized on private counts, operated on the true trips.

The paper does not say how it sizes and dispatches, nor are its trips public. Here both are Dunnage's
(:mod:`dunnage.planning.fleet`): the smallest fleet of each zone whose riders wait 180 s at most on average, sized on
what was released, then run on the true trips with their true seconds. What it is compared with is the fleet that the
same method finds on these trips.

Noise and seconds are seeded, so that everything but times comes out the same again. Releases with more trips than
``MOST_TRIPS`` are left out, and counted, but for two examples: sizing them takes from minutes to hours.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

import dunnage as dn
from dunnage.mechanisms.counts import Counted, DrawnCounts, NoisyCounts, true_counts
from dunnage.noise.source import Noise
from dunnage.planning.demand import Ground, counted_trips, service_seconds
from dunnage.planning.dispatch import Parking, Service
from dunnage.planning.fleet import DayRun, FleetTask, Sized, expanded_days, run_facts
from dunnage.samples import CitySetting, TripSetting, city, generate_city, generate_city_trips
from dunnage.settle.fleets import served_task, true_days
from papers.fioretto2018_runs import (
    CONSTRAINED,
    EPSILONS,
    FLOOR,
    HIERARCHICAL,
    LAPLACE,
    PRESETS,
    PUBLISHED,
    SEED,
    SOUND,
    WEEKDAY,
    WEEKEND,
    WHOLE_DAY,
    Trips,
    trips,
)
from papers.measuring import Run, Runs, column_of, efforts, mean_interval, seed_of, written

MAX_WAIT = 180.0
THRESHOLDED = "Laplace, threshold"
EXACT = "true counts"  # no noise: what random seconds alone do to a fleet
FEW_TRIPS, MOST_TRIPS = 20_000, 100_000
"""Up to the first five expansions are sized together, up to the second one; beyond it none, but for ``EXAMPLES``."""
LARGE = (LAPLACE, FLOOR, *HIERARCHICAL)  # what noise makes many trips of
SMALL = (THRESHOLDED, *CONSTRAINED, *PRESETS)
METHODS = (LAPLACE, FLOOR, THRESHOLDED, *HIERARCHICAL, *CONSTRAINED, *PRESETS)
TOWN = "town"


def threshold(num_cells: int, epsilon: float) -> int:
    """Return the least count that noise lifts fewer than one of so many empty cells to, on average."""
    return math.ceil(0.5 + math.log(num_cells / 2) / epsilon)


@dataclass(frozen=True, eq=False)
class Scene:
    own: Trips
    ground: Ground

    @cached_property
    def span(self) -> tuple[int, int]:
        return service_seconds(self.own.counted.universe)

    @cached_property
    def truth(self) -> FleetTask:
        days = true_days(self.own.dataset, self.own.counted.universe, self.ground, None)
        assert days is not None  # trips are single ones, of one date
        return FleetTask(self.ground, days, service=Service(), max_wait=MAX_WAIT, span=self.span)

    @cached_property
    def needed(self) -> Sized:
        return self.truth.size()

    def task(self, counts: DrawnCounts | Counted, expansions: int) -> FleetTask:
        stated = counted_trips(self.own.counted.universe, counts.cells, counts.counts, self.ground.city)
        days = expanded_days(stated, self.ground, expansions=expansions)
        return FleetTask(self.ground, days, service=Service(), max_wait=MAX_WAIT, span=self.span)

    def operated(self, fleet: Sequence[int], parking: Sequence[Parking | None] | None = None) -> dict[str, float]:
        """Run a fleet on the true trips: mean wait, idle seconds a shuttle, worst mean wait of a zone, rides unserved.

        Who needs a zone without shuttles is not served; waits are those of the others.
        """
        served = served_task(self.truth, tuple(fleet), parking)
        runs = [DayRun.of(day, run, len(fleet)) for day, run in zip(served.days, served.operate(fleet), strict=True)]
        facts = run_facts(served, fleet, runs)
        return {
            "wait": facts.wait_seconds.mean if facts else math.nan,
            "idle": facts.idle_seconds if facts else math.nan,
            "worst_wait": float(served.mean_waits(fleet).max()) if facts else math.nan,
            "unserved": float(self.truth.legs.sum() - served.legs.sum()),
        }


@lru_cache(maxsize=3)
def scene(place: str, day: str, draw: int) -> Scene:
    """Generate a day: in the town of the case study, or in another generated city."""
    if place == TOWN:
        return Scene(trips(day, draw), Ground.of(city()))
    seed = int(place.split()[1])
    window = ("00:00", "24:00") if day == WHOLE_DAY else ("08:00", "10:00")
    with tempfile.TemporaryDirectory() as folder:
        own = generate_city(CitySetting(), Path(folder) / "city", seed=seed)
        setting = TripSetting(weekend=day == WEEKEND, window=window, level="stop")
        data, policy = generate_city_trips(setting, own, Path(folder) / "trips.csv", seed=SEED + draw)
        dataset = dn.load(data, dn.Policy.read(policy))
    return Scene(Trips(dataset, true_counts(dataset)), Ground.of(city(seed=seed)))


if TYPE_CHECKING:  # the class is made from what is written
    Effort: TypeAlias = Any
    FULL: Any
    QUICK: Any
else:
    Effort, FULL, QUICK = efforts(__name__, "fleets")
METHODS_QUICK = (LAPLACE, FLOOR, THRESHOLDED, "O3", "O5", PRESETS[0])


@dataclass(frozen=True, kw_only=True)
class FleetJob:
    """One release to size a fleet on; of more trips than ``most_trips`` only the number is known."""

    day: str
    epsilon: float
    method: str
    form: str
    run: int
    place: str = TOWN
    draw: int = 0
    most_trips: int = MOST_TRIPS


class FleetRun(Run):
    """A fleet sized on one release and run on the true trips; relative errors are positive if it is too large."""

    @property
    def more_shuttles(self) -> float:
        return self.shuttles / self.true_shuttles - 1

    @property
    def more_wait(self) -> float:
        return self.wait / self.true_wait - 1

    @property
    def more_idle(self) -> float:
        return self.idle / self.true_idle - 1


def jobs(effort: Effort) -> list[FleetJob]:
    full = len(effort.epsilons) == len(EPSILONS)
    methods = METHODS if full else METHODS_QUICK
    todo: list[FleetJob] = []
    for day in (WEEKDAY, WEEKEND) if full else (WEEKDAY,):
        for epsilon, large in zip(effort.epsilons, effort.large, strict=True):
            for method in methods:
                # The paper's Figure 5(c-d), below epsilon 1, is of the weekday alone.
                few = (large if day == WEEKDAY or epsilon == 1 else 0) if method in LARGE else effort.runs
                todo += [_job(day, epsilon, method, run) for run in range(few)]
        todo.append(_job(day, 1.0, EXACT, 0))
        todo += [_job(day, 1.0, "O5", run, form=PUBLISHED) for run in range(effort.runs)]
    for place, draw in effort.places:
        todo += [_job(WEEKDAY, 1.0, "O5", run, place=place, draw=draw) for run in range(effort.runs)]
        todo += [_job(WEEKDAY, 1.0, method, 0, place=place, draw=draw) for method in (EXACT, LAPLACE)[: 1 + full]]
    todo += [_job(WHOLE_DAY, 1.0, "O5", run) for run in range(effort.whole)]
    todo = [job for job in todo if (job.day, job.epsilon) not in effort.examples or job.method != LAPLACE]
    todo += [_job(day, epsilon, LAPLACE, 0, most_trips=10 * MOST_TRIPS) for day, epsilon in effort.examples]
    return sorted(todo, key=lambda job: (job.most_trips == MOST_TRIPS, job.method not in LARGE, job.day != WHOLE_DAY))


def _job(day: str, epsilon: float, method: str, run: int, *, form: str = SOUND, **where: Any) -> FleetJob:
    return FleetJob(day=day, epsilon=epsilon, method=method, run=run, form=form, **where)


def released(own: Trips, job: FleetJob) -> DrawnCounts | Counted:
    noise = Noise(seed=seed_of(job))
    if job.method == EXACT:
        return own.counted
    if job.method == THRESHOLDED:
        way = NoisyCounts(epsilon=str(job.epsilon), threshold=threshold(own.num_cells, job.epsilon), rounding="round")
        return way.draw_counts(own.counted, way.law(own.dataset), noise)
    return own.draw(job.method, job.epsilon, job.form)(noise)


def measure(job: FleetJob) -> list[FleetRun]:
    here = scene(job.place, job.day, job.draw)
    counts = released(here.own, job)
    num_trips = int(counts.counts.sum())
    # Shuttle rides on one day; days with random seconds that the fleet was sized for, none if it was left out; waits of
    # true riders; CPU time of the sizing.
    sizes: dict[str, Any] = {"legs": 0, "expansions": 0}
    sizes |= dict.fromkeys(("shuttles", "wait", "idle", "worst_wait", "unserved"), math.nan)
    seconds = math.nan
    if num_trips <= job.most_trips:
        start = time.process_time()
        # Fewer days with random seconds are sized together where there are many trips, which differ less.
        task = here.task(counts, 5 if num_trips <= FEW_TRIPS else 1)
        fleet = task.size().fleet
        seconds = time.process_time() - start
        sizes |= {"legs": round(float(task.legs.sum()) / len(task.days)), "expansions": len(task.days)}
        sizes |= {"shuttles": float(sum(fleet)), **here.operated(fleet, task.parking)}
    true = here.operated(here.needed.fleet, here.needed.parking)
    needed = {"true_shuttles": sum(here.needed.fleet), "true_wait": true["wait"], "true_idle": true["idle"]}
    kind = {name: getattr(job, name) for name in ("place", "day", "draw", "epsilon", "method", "form", "run")}
    return [FleetRun(**kind, trips=num_trips, **sizes, **needed, seconds=seconds)]


def warm_up() -> None:
    measure(_job(WEEKDAY, 1.0, "O5", 0))


class Fleets(Runs):
    KIND = ("day", "method", "epsilon", "form", "place", "draw")

    @classmethod
    def of(cls, found: Iterable[FleetRun], effort: Effort) -> Fleets:
        order = {method: place for place, method in enumerate((EXACT, *METHODS))}
        runs = sorted(found, key=lambda r: (r.place, r.day, r.draw, order[r.method], r.form, -r.epsilon, r.run))
        return cls(runs, effort)

    @property
    def days(self) -> tuple[str, ...]:
        return tuple(day for day in (WEEKDAY, WEEKEND) if any(run.day == day for run in self.runs))

    def usual(self) -> dict[str, object]:
        return {"form": SOUND, "place": TOWN, "draw": 0}

    def sized(self, day: str, method: str, epsilon: float, **kind: Any) -> list[FleetRun]:
        """Return the fleets of a kind that were sized, without those left out."""
        return [run for run in self.of_kind(day=day, method=method, epsilon=epsilon, **kind) if run.expansions]

    def mean(self, column: str, day: str, method: str, epsilon: float, **kind: Any) -> float:
        return mean_of(self.sized(day, method, epsilon, **kind), column)[0]

    def truth(self, day: str) -> FleetRun:
        return next(run for run in self.runs if (run.place, run.day, run.draw) == (TOWN, day, 0))

    def scenes(self) -> list[tuple[str, str, int]]:
        return list(dict.fromkeys((run.place, run.day, run.draw) for run in self.runs))


def mean_of(runs: Sequence[FleetRun], column: str) -> tuple[float, float]:
    """Return the mean of a measure and half the width of its 95 % interval; nan for what is not known."""
    values = column_of(runs, column)
    return mean_interval(values[np.isfinite(values)])


TABLE_1, TABLE_1_TRUE = (written("fioretto2018")[name] for name in ("table 1", "table 1, true"))
_ERRORS = {"shuttles": "more_shuttles", "wait": "more_wait", "idle": "more_idle"}


def tables_of(fleets: Fleets) -> dict[str, list[dict[str, object]]]:
    by_epsilon = [
        {"day": day, "mechanism": method, "epsilon": epsilon, **_measured(own)}
        for day in fleets.days
        for method in METHODS
        for epsilon in fleets.effort.epsilons
        if (own := fleets.sized(day, method, epsilon))
    ]
    weekdays = [
        {
            "weekday": f"{place}, day {draw}, {'whole' if day == WHOLE_DAY else '8 to 10 am'}",
            "mechanism": method,
            **_measured(own),
        }
        for place, day, draw in fleets.scenes()
        for method in (EXACT, "O5", LAPLACE)
        if day != WEEKEND and (own := fleets.sized(day, method, 1.0, place=place, draw=draw))
    ]
    tables = {"table1": _table_1(fleets), "fleets": by_epsilon, "weekdays": weekdays}
    return tables | ({"left-out": rows} if (rows := left_out(fleets)) else {})


def _table_1(fleets: Fleets) -> list[dict[str, object]]:
    rows = []
    for day in fleets.days:
        true = fleets.truth(day)
        own = (true.true_shuttles, true.true_wait, true.true_idle)
        rows.append(_table_1_row(day, "truth, printed", math.nan, TABLE_1_TRUE[day]))
        rows.append(_table_1_row(day, "truth", trips(day).counted.num_trips, own))
        for method, form in [(EXACT, SOUND), *((m, SOUND) for m in METHODS), ("O5", PUBLISHED)]:
            if runs := fleets.sized(day, method, 1.0, form=form):
                rows.append(_table_1_row(day, method, mean_of(runs, "trips")[0], (), runs, form))
    return rows


def _table_1_row(
    day: str, method: str, num_trips: float, known: Sequence[float], runs: Sequence[FleetRun] = (), form: str = ""
) -> dict[str, object]:
    line: dict[str, object] = {"day": day, "mechanism": method, "form": form, "trips": float(num_trips)}
    stated = TABLE_1.get(method, {}).get(day, (math.nan,) * 3)
    for place, name in enumerate(_ERRORS):
        mean, half = (float(known[place]), math.nan) if known else mean_of(runs, name)
        line |= {name: mean, f"{name}_sd": half}
    for (name, column), printed in zip(_ERRORS.items(), stated, strict=True):
        mean, half = mean_of(runs, column)
        line |= {f"{name} off, printed": printed, f"{name} off": mean, f"{name} off_sd": half}
    return line


def _measured(runs: Sequence[FleetRun]) -> dict[str, object]:
    """Return a fleet and the waits with it, always together."""
    shuttles = [run.shuttles for run in runs]
    line: dict[str, object] = {"draws": len(runs), "true shuttles": runs[0].true_shuttles}
    line["shuttles"], line["shuttles_sd"] = mean_of(runs, "shuttles")
    line["from, to"] = f"{min(shuttles):,.0f}, {max(shuttles):,.0f}"
    line["off"], line["off_sd"] = mean_of(runs, "more_shuttles")
    line["true wait"] = runs[0].true_wait
    for name, column in {"wait": "wait", "wait, worst zone": "worst_wait", "idle": "idle", "trips": "trips"}.items():
        line[name], line[f"{name}_sd"] = mean_of(runs, column)
    return line | {"unserved": mean_of(runs, "unserved")[0], "CPU s": mean_of(runs, "seconds")[0]}


def left_out(fleets: Fleets) -> list[dict[str, object]]:
    return [
        {"day": run.day, "mechanism": run.method, "epsilon": run.epsilon, "trips": float(run.trips)}
        for run in fleets.runs
        if not run.expansions
    ]
