# SPDX-License-Identifier: Apache-2.0
"""What is audited and with what, and what was found so far: handed from one kind of attack to the next."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dunnage.auditing.finding import Finding
from dunnage.auditing.fleet import Fleet
from dunnage.city import City
from dunnage.dataset import Dataset
from dunnage.errors import ParameterError, ReleaseError
from dunnage.planning.plan import FleetPlan, Plan, told_fleet_plan
from dunnage.publication import Key, key_path
from dunnage.release import COUNTS, ESTIMATES, Release

Progress = Callable[[str], None]
Place = Release | str | os.PathLike[str]
Other = tuple[Place, Dataset] | tuple[Place, Dataset, Key | None]
AnyPlan = Plan | FleetPlan


@dataclass(frozen=True, eq=False, kw_only=True)
class Asked:
    """What is audited, and with what; no data for an external audit."""

    release: Release  # release, key: the release, and which row is which record, if that is at hand
    data: Dataset | None  # data, fleet: the true rows, or the vehicles that reported
    fleet: Fleet | None
    # plan, city, shuttle_hour: a plan made on the release; of shuttles, the city that it is for, and what an hour of
    # one costs
    plan: AnyPlan | None
    city: City | None
    shuttle_hour: float | None
    key: Key | None
    population: Dataset | None  # population, also, tolerance: as for :func:`dunnage.audit`
    also: Sequence[Other]
    tolerance: float | None
    # seconds, tell: most time for the plan on the true weights, and what is called as each attack begins
    seconds: float
    tell: Progress

    @property
    def external(self) -> bool:
        """Whether there is no truth to compare with."""
        return self.data is None and self.fleet is None

    @property
    def packing(self) -> Plan | None:
        """The plan, if it is one of packages."""
        return self.plan if isinstance(self.plan, Plan) else None

    @property
    def shuttles(self) -> FleetPlan | None:
        """The plan, if it is one of shuttles."""
        return self.plan if isinstance(self.plan, FleetPlan) else None


@dataclass(eq=False)
class Told:
    """What was found so far."""

    statistic: str  # What was told about a class, or `noise`, `counts`, `estimates`
    findings: list[Finding] = field(default_factory=list)  # findings, notes: findings, and what could not be found
    # at_risk, risk_says: the records that are most at risk, and what that means or why there is none
    at_risk: list[dict[str, Any]] = field(default_factory=list)
    risk_says: str = ""
    notes: list[str] = field(default_factory=list)

    def add(self, findings: Iterable[Finding], notes: Iterable[str] = ()) -> None:
        """Put findings and notes behind those there are."""
        self.findings += findings
        self.notes += notes


def opened(release: Place, key: Key | None, *, with_key: bool = True) -> tuple[Release, Key | None]:
    """Read a release folder, and the key beside it if there is one."""
    if isinstance(release, Release):
        return release, key
    beside = key_path(release)
    found = Release.read(release)
    return found, Key.read(beside) if with_key and key is None and beside.is_file() else key


def plan_of(plan: AnyPlan | str | os.PathLike[str] | None, release: Release, *, external: bool) -> AnyPlan | None:
    """Read a plan, and check that it may be looked at here."""
    found = plan if plan is None or isinstance(plan, Plan | FleetPlan) else _read_plan(Path(plan))
    if found is None:
        return None
    _refuse_other_kind(found, release)
    if found.release != release.certificate.digest and (found.release or not found.external):
        raise ReleaseError("the plan was made on another release. Give that release, or plan on this one.")
    if external and isinstance(found, Plan) and found.private:
        raise ParameterError("the plan was made on true weights, so nothing of it may be handed out. Leave it away.")
    return found


def _read_plan(path: Path) -> AnyPlan:
    if path.is_file() and told_fleet_plan(path):
        return FleetPlan.read(path)
    if not path.is_dir():
        raise ParameterError(
            f"{os.fspath(path)} is not a plan folder. Give the folder that pack or size wrote, or a CSV zone,shuttles."
        )
    return FleetPlan.read(path) if told_fleet_plan(path) else Plan.read(path)


def _refuse_other_kind(plan: AnyPlan, release: Release) -> None:
    """Refuse shuttles for anything but counts of trips, and packages for anything but rows."""
    if release.kind == ESTIMATES:
        raise ParameterError("nothing is planned on estimates from devices. Got a plan. Leave --plan out.")
    if isinstance(plan, FleetPlan) != (release.kind == COUNTS):
        wanted = "shuttles, made by size" if release.kind == COUNTS else "packages, made by pack"
        raise ParameterError(f"this release goes with a plan of {wanted}. Got another. Give the plan made on it.")
