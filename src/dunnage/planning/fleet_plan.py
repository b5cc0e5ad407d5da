# SPDX-License-Identifier: Apache-2.0
"""FleetPlan: how many shuttles each zone gets, as a value and as a folder.

The folder holds ``plan.json`` and ``fleet.csv`` (``zone,shuttles``). A bare CSV file with these two columns, made by
anybody, is a plan too: it is marked external.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dunnage._version import __version__
from dunnage.errors import InputError, ParameterError, Problem
from dunnage.folders import new_folder
from dunnage.planning.plan import FORMAT, MOST_PLAN_BYTES, PLAN_FILE
from dunnage.planning.trucks import read_lines, write_lines
from dunnage.text import several

FLEET_FILE = "fleet.csv"
PLAN_PAGE = "plan.html"
FLEET_HEADER = ("zone", "shuttles")
PACKING_HEADER = ("row", "bin")
MOST_SHUTTLES = 1_000_000
"""Most shuttles of a zone that a plan may name."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FleetPlan:
    """How many shuttles each zone of a city gets.

    Parameters
    ----------
    release
        Digest of the certificate of the release that was planned on; empty for somebody else's plan.
    zones, shuttles
        Names of the zones, and the shuttles of each.
    model
        What was asked for: ``name``, ``max_wait_seconds``, the service, how trips were given seconds; plain data.
    bound
        No smaller fleet can meet the target on the trips that were planned for: proved, and weak.
    seconds, probes
        Time taken, and how many days were simulated.
    by_zone
        For each zone what it is planned for (``legs``), what bounds it (``bound``; ``solo_cover`` for orientation
        only), the fleets that single expansions need, the zone by itself (``spread``), and how it runs.
    operation
        How all zones run: ``wait_seconds`` (mean, median, 95 %), ``busy_share``, ``empty_share``, ``parked_share``,
        ``idle_share``, ``idle_seconds`` of a shuttle and day, ``occupancy``.
    demand
        What was planned for, on an average day: ``trips``, ``legs``, those that need no shuttle, shares of modes.
    city
        Digest of the city that was planned in, and its size.
    assumed, notes
        What the plan takes for granted, and what its reader should know; sentences.
    unplanned
        Trips known to be made outside the plan.
    external
        Whether somebody else made it.
    """

    release: str
    zones: tuple[str, ...]
    shuttles: tuple[int, ...]
    model: Mapping[str, Any] = field(default_factory=dict)
    bound: int = 0
    seconds: float = 0.0
    probes: int = 0
    by_zone: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    operation: Mapping[str, Any] = field(default_factory=dict)
    demand: Mapping[str, Any] = field(default_factory=dict)
    city: Mapping[str, Any] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unplanned: Mapping[str, Any] = field(default_factory=lambda: {"count": 0})
    external: bool = False

    def __post_init__(self) -> None:
        if len(self.zones) != len(self.shuttles) or len(set(self.zones)) < len(self.zones):
            raise ParameterError("a plan of shuttles names each zone once, with its shuttles. Mend zones and shuttles.")
        if any(not 0 <= number <= MOST_SHUTTLES for number in self.shuttles):
            raise ParameterError(f"a zone has 0 to {MOST_SHUTTLES:,} shuttles. Got another number. Mend the plan.")
        if not 0 <= self.bound <= self.objective:
            raise ParameterError("a bound is at least 0 and at most the shuttles of the plan. Mend it.")

    @property
    def objective(self) -> int:
        """Shuttles of all zones."""
        return sum(self.shuttles)

    @property
    def gap(self) -> int:
        """How many shuttles fewer might still be possible."""
        return self.objective - self.bound

    @property
    def status(self) -> str:
        """``external`` for somebody else's plan, otherwise ``feasible``: it meets the target in the simulation."""
        return "external" if self.external else "feasible"

    def shuttles_of(self, zones: Sequence[str], source: str = "plan") -> list[int]:
        """Return the shuttles of each zone of a city.

        Raises
        ------
        InputError
            If the plan lacks one of the zones, or has another.
        """
        held = dict(zip(self.zones, self.shuttles, strict=True))
        problems = [f"has no line for zone {zone!r}. Add it, with 0 if need be." for zone in zones if zone not in held]
        problems += [f"names {zone!r}, which is no zone of the city. Remove it." for zone in held if zone not in zones]
        if problems:
            raise InputError(source, problems[:20])
        return [held[zone] for zone in zones]

    def to_dict(self) -> dict[str, Any]:
        """Give the plan as plain data."""
        return {
            "format": FORMAT,
            "kind": "fleet",
            "release": self.release,
            "objective": self.objective,
            "minimises": "shuttles",
            "bound": self.bound,
            "gap": self.gap,
            "status": self.status,
            "seconds": round(self.seconds, 3),
            "probes": self.probes,
            "model": dict(self.model),
            "fleet": dict(zip(self.zones, self.shuttles, strict=True)),
            "zones": {zone: dict(facts) for zone, facts in self.by_zone.items()},
            "operation": dict(self.operation),
            "demand": dict(self.demand),
            "city": dict(self.city),
            "assumed": list(self.assumed),
            "notes": list(self.notes),
            "unplanned": dict(self.unplanned),
            "software": {"dunnage": __version__},
        }

    def summary(self) -> str:
        """Describe the plan for a person."""
        lines = [f"Shuttles    {self.objective}{self._bound_text()}: {self.status}"]
        lines += [f"Zone        {zone}: {self._zone_text(zone, number)}" for zone, number in self._listed()]
        if self.operation:
            lines += [*_wait_lines(self.operation), *_share_lines(self.operation)]
        if self.demand:
            lines.append(f"Planned for {_demand_text(self.demand)}")
            lines.append(f"Modes       {_modes_text(self.demand['modes'])}")
        lines += [f"Assumes     {sentence}" for sentence in self.assumed]
        lines += [f"Note        {sentence}" for sentence in self.notes]
        if not self.external:
            lines.append(f"Seconds     {self.seconds:.2f}, {several(self.probes, 'day')} simulated")
        return "\n".join(lines)

    def _listed(self) -> list[tuple[str, int]]:
        return list(zip(self.zones, self.shuttles, strict=True))

    def _bound_text(self) -> str:
        return "" if self.external else f", at least {self.bound} needed"

    def _zone_text(self, zone: str, number: int) -> str:
        facts = self.by_zone.get(zone)
        if not facts:
            return several(number, "shuttle")
        spread = facts["spread"]
        between = f"; by itself {_range_text(spread)} for single days" if spread else ""
        wait = f", wait {facts['wait_seconds']['mean']:.0f} s" if facts["wait_seconds"] else ""
        return f"{several(number, 'shuttle')} for {several(round(facts['legs']), 'ride')} a day{wait}{between}"

    def write(self, folder: str | os.PathLike[str], *, page: str = "", force: bool = False) -> Path:
        """Write the plan: ``plan.json``, ``fleet.csv`` and, if given, its page ``plan.html``."""
        with new_folder(folder, marker=PLAN_FILE, force=force, may_hold=(PLAN_PAGE,)) as work:
            text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            (work / PLAN_FILE).write_text(text, encoding="utf-8")
            write_lines(work / FLEET_FILE, FLEET_HEADER, self._listed())
            if page:
                (work / PLAN_PAGE).write_text(page, encoding="utf-8")
        return Path(folder)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> FleetPlan:
        """Read a plan folder, or a bare CSV file ``zone,shuttles``.

        Raises
        ------
        InputError
            With what is wrong, if it is not a plan.
        """
        place = Path(path)
        if not place.is_dir():
            zones, shuttles = _read_fleet(place)
            return cls(release="", zones=zones, shuttles=shuttles, model={"name": "external"}, external=True)
        content = plan_content(place)
        if content.get("kind") != "fleet":
            raise InputError(str(place / PLAN_FILE), ["is not a plan of shuttles. Give one that size made."])
        zones, shuttles = _read_fleet(place / FLEET_FILE)
        try:
            return cls._of(content, zones, shuttles)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise InputError(str(place / PLAN_FILE), ["is not a plan of this version. Make it anew."]) from None

    @classmethod
    def _of(cls, content: Mapping[str, Any], zones: tuple[str, ...], shuttles: tuple[int, ...]) -> FleetPlan:
        """Make a plan of what its files hold; whatever does not fit raises."""
        by_zone = {zone: _zone_facts(facts) for zone, facts in _typed(content["zones"], dict).items()}
        plan = cls(
            release=_typed(content["release"], str),
            zones=zones,
            shuttles=shuttles,
            model=_typed(content["model"], dict),
            bound=_typed(content["bound"], int),
            seconds=_number(content["seconds"]),
            probes=_typed(content["probes"], int),
            by_zone=by_zone,
            operation=_operation_facts(content["operation"]),
            demand=_demand_facts(content["demand"]),
            city=_typed(content["city"], dict),
            assumed=tuple(_typed(text, str) for text in _typed(content["assumed"], list)),
            notes=tuple(_typed(text, str) for text in _typed(content["notes"], list)),
            unplanned=_typed(content["unplanned"], dict),
            external=_typed(content["status"], str) == "external",
        )
        same = content["fleet"] == dict(zip(zones, shuttles, strict=True)) and content["objective"] == plan.objective
        if not same or not by_zone.keys() <= set(zones) or content["gap"] != plan.gap:
            raise ValueError
        return plan


def plan_content(folder: Path) -> Mapping[str, Any]:
    """Read ``plan.json`` of a plan of any kind."""
    path = folder / PLAN_FILE
    try:
        if path.stat().st_size > MOST_PLAN_BYTES:
            raise InputError(str(path), ["is too large to be a plan. Check the path."])
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror}. Give a plan folder."]) from None
    except (ValueError, RecursionError):
        raise InputError(str(path), ["is not JSON. Make the plan anew."]) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(str(path), [f"is not a plan of format {FORMAT}. Use a newer version of Dunnage."])
    return content


def is_fleet_plan(path: str | os.PathLike[str]) -> bool:
    """Tell whether a folder or CSV file is a plan of shuttles; what cannot be read is none."""
    place = Path(path)
    try:
        if place.is_dir():
            return (place / PLAN_FILE).is_file() and plan_content(place).get("kind") == "fleet"
        read_lines(place, FLEET_HEADER)
    except InputError:
        return False
    return True


def told_fleet_plan(path: str | os.PathLike[str]) -> bool:
    """Tell whether a folder or CSV file is a plan of shuttles, or else one of packages."""
    place = Path(path)
    if place.is_dir():
        kind = plan_content(place).get("kind")
        if kind not in ("packing", "fleet"):
            what = "is a plan neither of packages nor of shuttles. Give one that pack or size made."
            raise InputError(str(place / PLAN_FILE), [what])
        return bool(kind == "fleet")
    try:
        with place.open(newline="", encoding="utf-8-sig") as stream:
            header = next((line for line in csv.reader(stream) if line), [])
    except OSError as error:
        raise InputError(str(place), [f"cannot be read: {error.strerror}. Give a plan: a folder or a CSV."]) from None
    except (ValueError, csv.Error):  # not UTF-8, or a path that no file can have
        raise InputError(str(place), ["is neither a plan folder nor a CSV file in UTF-8. Give one."]) from None
    begins = tuple(name.strip() for name in header[:2])
    if begins not in (PACKING_HEADER, FLEET_HEADER):
        what = (
            f"is no plan: a CSV file begins with {','.join(PACKING_HEADER)} for packages, or {','.join(FLEET_HEADER)} "
            "for shuttles. Mend the first line."
        )
        raise InputError(str(place), [what])
    return begins == FLEET_HEADER


def _read_fleet(path: Path) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Read ``zone,shuttles``: every zone once, with a whole number."""
    lines = [[cell.strip() for cell in line] for line in read_lines(path, FLEET_HEADER)]
    zones, seen, problems = tuple(line[0] for line in lines), set[str](), []
    for row, line in enumerate(lines, 1):
        if len(line) != len(FLEET_HEADER) or not line[0]:
            problems.append(Problem("is not a zone and its shuttles", rows=(row,), remedy="Mend the line."))
        elif not (line[1].isascii() and line[1].isdecimal() and len(line[1]) < 8 and int(line[1]) <= MOST_SHUTTLES):
            remedy = f"Write a whole number up to {MOST_SHUTTLES:,}."
            problems.append(Problem("has no whole number of shuttles", rows=(row,), remedy=remedy))
        if line[0] in seen:
            problems.append(Problem("names a zone a second time", rows=(row,), remedy="Remove one."))
        seen.add(line[0])
    if problems or not lines:
        raise InputError(str(path), problems[:20] or ["names no zone. Give a line zone,shuttles for each."])
    return zones, tuple(int(line[1]) for line in lines)


def _typed(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise TypeError
    return value


def _number(value: Any) -> float:
    number = float(_typed(value, int, float))
    if not math.isfinite(number):
        raise ValueError
    return number


def _numbers(content: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        _number(content[name])


def _zone_facts(content: Any) -> dict[str, Any]:
    facts: dict[str, Any] = _typed(content, dict)
    _numbers(facts, ("legs", "bound", "solo_cover"))
    if _typed(facts["spread"], dict):
        _numbers(facts["spread"], ("smallest", "mean", "largest"))
    if _typed(facts["wait_seconds"], dict):
        _numbers(facts["wait_seconds"], ("mean", "median", "p95"))
    return facts


SHARES = ("busy_share", "empty_share", "parked_share", "idle_share", "idle_seconds", "occupancy")
"""What is told of how shuttles run, besides waits."""


def _operation_facts(content: Any) -> dict[str, Any]:
    facts: dict[str, Any] = _typed(content, dict)
    if facts:
        _numbers(facts["wait_seconds"], ("mean", "median", "p95"))
        _numbers(facts, SHARES)
    return facts


def _demand_facts(content: Any) -> dict[str, Any]:
    facts: dict[str, Any] = _typed(content, dict)
    if facts:
        _numbers(facts, ("trips", "legs", "same_stop", "without_shuttle"))
        _numbers(facts["modes"], list(_typed(facts["modes"], dict)))
    return facts


def _range_text(spread: Mapping[str, Any]) -> str:
    smallest, largest = spread["smallest"], spread["largest"]
    return f"{smallest}" if smallest == largest else f"{smallest} to {largest}"


def _wait_lines(operation: Mapping[str, Any]) -> list[str]:
    wait = operation["wait_seconds"]
    return [f"Wait        {wait['mean']:.0f} s on average, median {wait['median']:.0f}, 95 % at most {wait['p95']:.0f}"]


def _share_lines(operation: Mapping[str, Any]) -> list[str]:
    return [
        f"Running     {operation['busy_share']:.1%} of the time with riders, {operation['empty_share']:.1%} driving "
        f"empty, {operation['parked_share']:.1%} parked; {operation['occupancy']:.2f} riders aboard when busy"
    ]


def _demand_text(demand: Mapping[str, Any]) -> str:
    trips, rides, none = (round(demand[name]) for name in ("trips", "legs", "without_shuttle"))
    return (
        f"{several(trips, 'trip')} a day with {several(rides, 'shuttle ride')}; without one {none:,}, "
        f"of which {demand['same_stop']:,.0f} to where they began"
    )


def _modes_text(modes: Mapping[str, float]) -> str:
    told = sorted(((share, mode) for mode, share in modes.items() if share > 0), reverse=True)
    return ", ".join(f"{mode} {share:.1%}" for share, mode in told) or "none"
