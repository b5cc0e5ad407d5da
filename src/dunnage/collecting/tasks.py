# SPDX-License-Identifier: Apache-2.0
"""Policies for devices, which perturb what they measure before anything leaves them, and the tasks made from them.

Such a policy has a table ``[mechanisms.NAME]`` for each kind of report instead of one ``[mechanism]``, and states when
devices report and how much one may reveal. It becomes the task that devices and platform agree on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Tag,
    create_model,
    field_validator,
    model_validator,
)

from dunnage.devices.client import check_task, mechanism_of
from dunnage.devices.numbers import LocalNumeric
from dunnage.devices.paths import LocalTrajectory
from dunnage.devices.places import LocalLocation
from dunnage.devices.subjects import MAX_TEXT, Grid, Quantity, Tier
from dunnage.devices.task import MECHANISMS, FileColumns, Limits, Purpose, Schedule, Task
from dunnage.errors import PolicyError, Problem, UserError, check_kind
from dunnage.model.documents import Flaws, suggestion
from dunnage.model.policy import (
    AnyRole,
    Document,
    Info,
    MadeTable,
    PolicyReading,
    Table,
    Texts,
    Written,
    canonical,
    checked_copy,
    digest_of,
    is_for_devices,
    key,
    note_name,
    number_of,
    numbers_of,
    problems_of_table,
    read_tables,
    refused,
    role_of,
)
from dunnage.model.schema import Role

ONLY_TIER = "all"  # Name of the one tier of a mechanism that has an epsilon of its own

_POSITIVE = "a number above 0"
_PUBLISHED = "is for publishing, not for devices"


@dataclass(frozen=True, kw_only=True)
class CarrierPolicy:
    dataset: str  # Name of the task
    protects: str  # What one device stands for
    vehicle: str  # Column that names the vehicle, if one file has rows of many; not reported
    numbers: tuple[Quantity, ...]  # numbers, grids: what can be reported
    grids: Mapping[str, Grid]
    place_columns: Mapping[str, tuple[str, str]]  # The columns of longitude and latitude of each grid
    purposes: tuple[Purpose, ...]  # What is reported, in the order of the policy
    schedule: Schedule
    limits: Limits  # Largest true loss of a vehicle in a day and in total
    time: str | None = None  # Column of the moment; not reported
    version: int = 1  # The task's number
    path: Path | None = field(default=None, compare=False)
    document: Document = field(default_factory=dict, repr=False, compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        names = [self.vehicle, *([self.time] if self.time else []), *(number.name for number in self.numbers)]
        names += [column for columns in self.place_columns.values() for column in columns]
        return tuple(dict.fromkeys(names))

    @property
    def file_columns(self) -> FileColumns:
        usual = FileColumns()
        places = next(iter(self.place_columns.values()), usual.places)
        return FileColumns(vehicle=self.vehicle, time=self.time or usual.time, places=places)

    def digest(self) -> str:
        return digest_of(canonical(self.document))


def read_carriers(path: str | os.PathLike[str]) -> CarrierPolicy:
    """Read a policy file for devices.

    Parameters
    ----------
    path
        The file, with tables ``[mechanisms.NAME]``.

    Raises
    ------
    PolicyError
        With all problems, if it is not a usable policy for devices.
    """
    return _carriers_of(Written.read(path))


def carriers_from_text(text: str, *, path: Path | None = None) -> CarrierPolicy:
    return _carriers_of(Written.from_text(text, path))


def _carriers_of(written: Written) -> CarrierPolicy:
    path, document = written.path, checked_copy(written.document, written.path)
    if not is_for_devices(document) and "mechanism" in document:
        what = f"this policy is for publishing, not for devices: use dunnage publish DATA --policy {path or 'POLICY'}"
        remedy = "A policy for devices has a table [mechanisms.NAME] for each kind of report."
        raise PolicyError(str(path or "policy"), [Problem(what, remedy=remedy)])
    tables, problems = read_tables(CarrierTables, PolicyReading(document=document))
    # Roles are read as they are written, so that a problem with one column does not hide the others.
    roles = _roles(document)
    identifiers = [name for name, role in roles.items() if role == Role.IDENTIFIER]
    undecided = None in roles.values() and not identifiers
    if isinstance(document.get("attributes"), Mapping) and len(identifiers) != 1 and not undecided:
        what = f"one column must be the identifier of vehicles; got {', '.join(identifiers) or 'none'}"
        remedy = 'Give role = "identifier" to the column that names vehicles, and "drop" to other names.'
        problems.append(Problem(what, where="attributes", remedy=remedy))
    if problems or tables is None:
        problems.sort(key=lambda p: [*CarrierTables.model_fields, top := p.where.split(".")[0]].index(top))
        raise PolicyError(str(path or "policy"), problems)
    numbers = {name: c.subject(name) for name, c in tables.attributes.items() if isinstance(c, NumberColumn)}
    places = {name: c for name, c in tables.attributes.items() if isinstance(c, GridColumn)}
    grids = {name: column.subject(name) for name, column in places.items()}
    purposes = []
    for name, duty in tables.mechanisms.items():
        assert isinstance(duty, Duty)  # one with an unknown name was refused
        numeric = _KIND_OF[duty.name] == "numeric"
        subjects = duty.attributes or tuple(numbers if numeric else grids)
        quantities = [numbers[at] for at in subjects] if numeric else []
        if duty.as_published:  # the published form knows no symbol: unless one is requested, as it was published
            silent = [at for at, column in tables.attributes.items() if getattr(column, "missing", "") is None]
            quantities = [replace(q, missing="middle") if q.name in silent else q for q in quantities]
        try:
            purposes.append(
                Purpose(
                    name=name,
                    mechanism=duty.name,
                    tiers=tuple(Tier(name=tier, epsilon=epsilon) for tier, epsilon in duty.levels(tables.tiers)),
                    parameters=duty.parameters,
                    quantities=tuple(quantities),
                    grid=None if numeric else grids[subjects[0]],
                    steps=duty.steps if isinstance(duty, TrajectoryDuty) else 1,
                )
            )
        except UserError as error:
            problems.append(Problem(str(error), where=f"mechanisms.{name}"))
    if problems:
        raise PolicyError(str(path or "policy"), problems)
    allowance = tables.allowance
    return CarrierPolicy(
        dataset=tables.dataset,
        protects=tables.protects,
        version=tables.version,
        vehicle=identifiers[0],
        time=tables.schedule.time,
        numbers=tuple(numbers.values()),
        grids=grids,
        place_columns={name: (column.columns[0], column.columns[1]) for name, column in places.items()},
        purposes=tuple(purposes),
        schedule=tables.schedule.made,
        limits=Limits(lifetime=allowance.lifetime, day=allowance.day, allow_unbounded=tables.allow_unbounded),
        path=path,
        document=document,
    )


def read_task(path: str | os.PathLike[str]) -> Task:
    return task_of(read_carriers(path))


def task_of(policy: CarrierPolicy) -> Task:
    """Make the task of a policy for devices.

    Parameters
    ----------
    policy
        The policy; names of columns are not part of the task, except those of numbers.

    Raises
    ------
    PolicyError
        With all problems: parameters that a mechanism does not take, or a day with reports that reveal more than the
        allowance.
    """
    check_kind(policy, CarrierPolicy, "task_of takes the policy of devices: dn.read_carriers(FILE)")
    source, problems = str(policy.path or "policy"), []
    try:
        task = Task(**{item.name: getattr(policy, item.name) for item in fields(Task)})
        for purpose in task.purposes:
            try:
                mechanism_of(task, purpose)
            except UserError as error:
                what = str(error).removeprefix(f"{purpose.name}: ")
                problems.append(Problem(what, where=f"mechanisms.{purpose.name}"))
        if not problems:
            check_task(task)
    except UserError as error:
        raise PolicyError(source, [str(error)]) from None
    if problems:
        raise PolicyError(source, problems)
    return task


def _named(name: str) -> str:
    if not (name and name.strip() == name and name.isprintable() and len(name) <= MAX_TEXT):
        remedy = f"Write at most {MAX_TEXT} printable characters."
        raise Flaws(Problem("is blank, unprintable or too long", remedy=remedy))
    return name


def _positive(value: object) -> Fraction:
    if value in ("", []):
        raise Flaws(Problem("is blank", remedy=f"Fill in {_POSITIVE}."))
    number = number_of(value, _POSITIVE)
    if number <= 0:
        raise Flaws(Problem(f"must be {_POSITIVE}", remedy="Write for example 1.0."))
    return number


def _bounds(value: object) -> tuple[Fraction, ...]:
    low, high = numbers_of(value, 2, "two numbers [lowest, highest], public bounds")
    if low >= high:
        raise Flaws(Problem("must begin below its end", remedy="Write [lowest, highest]."))
    return low, high


def _box(value: object) -> tuple[Fraction, ...]:
    west, south, east, north = numbers_of(value, 4, "four numbers [west, south, east, north], in degrees")
    if not (west < east and south < north):
        remedy = "Write west, south, east, north in degrees, with west below east and south below north."
        raise Flaws(Problem("is empty", remedy=remedy))
    return west, south, east, north


def _for_devices(value: object, info: Info) -> object:
    """Refuse what only a publisher can do with a value that does not fit."""
    if value in ("refuse", "leave-out"):
        words = "symbol or middle" if info.field_name == "missing" else "clamp"
        what = (
            f"= {value} is not for devices: refusing a report, or leaving it out, because of a value reveals the value"
        )
        raise Flaws(Problem(what, remedy=f"Use {words}."))
    return value


def _perturbed(role: Role) -> Role:
    if role in (Role.PUBLIC, Role.SENSITIVE):
        remedy = 'Write "quasi-identifier" to perturb and report it, otherwise "drop".'
        raise Flaws(Problem(f"{role!s} would be sent in clear, and devices send nothing unperturbed", remedy=remedy))
    return role


Name = Annotated[str, AfterValidator(_named)]
Positive = Annotated[Fraction, BeforeValidator(_positive)]


class NumberColumn(Table):
    role: AnyRole
    kind: Literal["numeric"]
    domain: Annotated[tuple[Fraction, ...], BeforeValidator(_bounds)] = key(
        "two numbers [lowest, highest], public bounds"
    )
    unit: str = key('text, such as "km/h"', "")
    steps: int | None = key("a whole number", None)
    missing: Annotated[Literal["symbol", "middle"] | None, BeforeValidator(_for_devices)] = None
    outside: Annotated[Literal["clamp"], BeforeValidator(_for_devices)] = "clamp"

    def subject(self, name: str) -> Quantity:
        steps = {} if self.steps is None else {"steps": self.steps}
        low, high = self.domain
        return Quantity(name=name, low=low, high=high, unit=self.unit, missing=self.missing or "symbol", **steps)


class GridColumn(Table):
    """Places that devices report as cells of a public grid; its name need not be a column."""

    role: AnyRole
    kind: Literal["grid"]
    box: Annotated[tuple[Fraction, ...], BeforeValidator(_box)] = key(
        "four numbers [west, south, east, north], in degrees"
    )
    levels: int = key("a whole number: 2^(levels - 1) columns and as many rows")
    area_levels: int = key("a whole number: how many of the levels name the area", 1)
    columns: Texts = key('["lon", "lat"], the columns of longitude and latitude', ("lon", "lat"))
    missing: None = refused("and outside are one symbol of the grid, which always exists", "Leave them out.")
    outside: None = refused("and missing are one symbol of the grid, which always exists", "Leave them out.")

    def subject(self, name: str) -> Grid:
        problems = []
        if len(self.columns) != 2 or self.columns[0] == self.columns[1]:
            problems.append(Problem("must be two columns", where="columns", remedy='Write for example ["lon", "lat"].'))
        if not 1 <= self.area_levels <= self.levels:
            remedy = f"Write 1 to {max(self.levels, 1)}."
            problems.append(Problem("must be from 1 to levels", where="area_levels", remedy=remedy))
        if problems:
            raise Flaws(*problems)
        west, south, east, north = self.box
        return Grid(box=(west, south, east, north), levels=self.levels, area_levels=self.area_levels)


class _SilentColumn(Table):
    role: Annotated[AnyRole, AfterValidator(_perturbed)]


_REPORTING: Any = {
    key: (object, None) for key in (NumberColumn.model_fields | GridColumn.model_fields) if key != "role"
}
SilentColumn = create_model("SilentColumn", __base__=_SilentColumn, **_REPORTING)


class UnkindedColumn(Table):
    """A reported column without a kind: what else it needs depends on that."""

    model_config = ConfigDict(extra="allow")
    kind: Literal["numeric", "grid"]


class UndecidedColumn(Table):
    """A column without a role: what else it needs depends on that."""

    model_config = ConfigDict(extra="allow")
    role: AnyRole


_Column = NumberColumn | GridColumn | SilentColumn | UnkindedColumn | UndecidedColumn


def _sort_of_column(data: object) -> str:
    role = role_of(data.get("role")) if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or role not in tuple(Role):
        return "UndecidedColumn"
    if role != Role.QUASI_IDENTIFIER:
        return "SilentColumn"
    return {"numeric": "NumberColumn", "grid": "GridColumn"}.get(str(data.get("kind")), "UnkindedColumn")


def _reportable(column: _Column, info: Info) -> _Column:
    if isinstance(column, NumberColumn | GridColumn):
        with problems_of_table():
            column.subject(info.context.column)
    return column


AnyColumn = Annotated[
    Annotated[NumberColumn, Tag("NumberColumn")]
    | Annotated[GridColumn, Tag("GridColumn")]
    | Annotated[SilentColumn, Tag("SilentColumn")]
    | Annotated[UnkindedColumn, Tag("UnkindedColumn")]
    | Annotated[UndecidedColumn, Tag("UndecidedColumn")],
    Discriminator(_sort_of_column),
    AfterValidator(_reportable),
]


def _roles(document: Document) -> dict[str, str | None]:
    """Return the role of each column as it is written; None where that is not a role."""
    tables = document.get("attributes")
    roles = {
        name: role_of(table.get("role")) if isinstance(table, Mapping) else None
        for name, table in (tables.items() if isinstance(tables, Mapping) else ())
    }
    return {name: role if isinstance(role, str) and role in tuple(Role) else None for name, role in roles.items()}


def _reported(document: Document, mechanism: str) -> tuple[list[str], bool]:
    """Return what a mechanism can report, as it is written, and whether some column is unclear."""
    kind = _KIND_OF[mechanism]
    roles = _roles(document)
    kinds = {
        name: document["attributes"][name].get("kind") for name, role in roles.items() if role == Role.QUASI_IDENTIFIER
    }
    unclear = any(role in (None, Role.PUBLIC, Role.SENSITIVE) for role in roles.values())
    unclear |= any(said not in ("numeric", "grid") for said in kinds.values())
    return [name for name, said in kinds.items() if said == kind], unclear


class ScheduleTable(MadeTable[Schedule]):
    slots_per_day: int | None = key("a whole number: how many reports of each kind a day has", None)
    slot_minutes: int | None = key("a whole number: how many minutes lie between two moments of a day", None)
    lateness_minutes: int | None = key("a whole number: how long a report may come late", None)
    skew_seconds: int | None = key("a whole number: how far clocks may differ", None)
    window: int | None = key("a whole number: how many slots share an epsilon", None)
    closing: str | None = key('"03:00", when a day closes', None)
    hours: Texts | None = key('["06:00", "20:00"], working hours in UTC: slots lie only in them', None)
    days: Texts | None = key('["2026-11-01", "2026-11-30"], the first and last day of the collection', None)
    time: str | None = key('"time", the column of the moment of a reading', None)

    @cached_property
    def made(self) -> Schedule:
        return Schedule(**{key: value for key, value in self.plain().items() if key != "time"})

    @field_validator("time")
    @classmethod
    def _is_silent(cls, time: str | None, info: Info) -> str | None:
        reading = info.context
        roles = _roles(reading.document)
        declared = set(roles)
        for table in reading.table("attributes").values():
            columns = table.get("columns", ["lon", "lat"]) if isinstance(table, Mapping) else None
            if isinstance(columns, list) and table.get("kind") == "grid":
                declared |= set(map(str, columns))
        if time is not None and time not in declared:
            remedy = f'Declare it with role = "drop". {suggestion(time, declared)}'
            raise Flaws(Problem(f"{time!r} is not a declared attribute", remedy=remedy))
        if time is not None and roles.get(time, Role.DROP) != Role.DROP:
            what = f"{time!r} is itself reported, or names vehicles"
            raise Flaws(Problem(what, remedy='Name a column with role = "drop".'))
        return time


class AllowanceTable(Table):
    day: Positive | None = key(_POSITIVE, None)
    lifetime: Positive = key(_POSITIVE)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.day is not None and self.day > self.lifetime:
            raise Flaws(Problem("exceeds lifetime", where="day", remedy="Lower it, or raise lifetime."))
        return self


class Duty(Table):
    """One kind of report that every device sends at each of its slots."""

    name: str
    epsilon: Positive | None = key(_POSITIVE, None)
    tiers: Texts | None = key('names of [tiers], such as ["basic", "strict"]', None)
    attributes: Texts | None = key("a list of names of attributes", None)
    method: str | None = key('the name of a method, such as "auto"', None)
    as_published: bool = key("true or false", False)

    @property
    def parameters(self) -> dict[str, bool | int | str]:
        """All other parameters of the mechanism that are given; a flag that is false is left out."""
        others = {"name", "steps", "epsilon", "tiers", "attributes"}
        return {key: v for key, v in self if key not in others and v is not None and v is not False}

    def levels(self, tiers: Mapping[str, Fraction]) -> list[tuple[str, Fraction]]:
        if self.epsilon is not None:
            return [(ONLY_TIER, self.epsilon)]
        return [(name, tiers[name]) for name in self.tiers or tiers]

    @model_validator(mode="after")
    def _fits(self, info: Info) -> Self:
        """Compare with tiers and columns as they are written, so that their problems hide none of these."""
        tiers, document, problems = info.context.table("tiers"), info.context.document, list[Problem]()
        levels = self.tiers if self.tiers is not None else tuple(tiers)
        if self.epsilon is not None and self.tiers is not None:
            problems.append(Problem("and tiers are both given", where="epsilon", remedy="Keep one of them."))
        elif self.epsilon is None:
            if not levels:
                remedy = "Write epsilon = ..., or [tiers]. It has no default, because you choose what it promises."
                problems.append(Problem("is missing, and there are no [tiers]", where="epsilon", remedy=remedy))
            if len(set(levels)) < len(levels):
                problems.append(Problem("names a tier twice", where="tiers", remedy="Name each once."))
            unknown = [name for name in levels if name not in tiers]
            problems += [
                Problem(f"{name!r} is not a tier", where="tiers", remedy=suggestion(name, tiers)) for name in unknown
            ]
        mechanism, kind = self.name, _KIND_OF[self.name]
        fitting, unclear = _reported(document, mechanism)
        chosen = self.attributes if self.attributes is not None else tuple(fitting)
        for name in chosen:
            if name not in fitting and not (unclear and name in _roles(document)):
                what = f"{name!r} is not a quasi-identifier of kind = {kind!r}, as {mechanism} needs"
                problems.append(Problem(what, where="attributes", remedy=suggestion(name, fitting)))
        if len(set(chosen)) < len(chosen):
            problems.append(Problem("names one twice", where="attributes", remedy="Name each once."))
        if not chosen and not unclear:
            what = f"there is nothing for {mechanism} to report"
            remedy = f'Declare one with role = "quasi-identifier" and kind = "{kind}".'
            problems.append(Problem(what, where="attributes", remedy=remedy))
        if kind == "grid" and len(chosen) > 1:
            what = f"{mechanism} reports the cells of one grid, and there are {len(chosen)}"
            remedy = f'Choose one, for example attributes = ["{chosen[0]}"].'
            problems.append(Problem(what, where="attributes", remedy=remedy))
        if problems:
            raise Flaws(*problems)
        return self


class NumericDuty(Duty):
    sampled: int | None = key("a whole number", None)


class LocationDuty(Duty):
    area_in_clear: bool = key("true or false", False)


class TrajectoryDuty(Duty):
    area_in_clear: bool = key("true or false", False)
    hops: int | None = key("a whole number", None)
    steps: int = key("a whole number", 2)


class UnnamedDuty(Table):
    model_config = ConfigDict(extra="allow")
    if TYPE_CHECKING:
        name: str
    else:
        name: Literal[tuple(MECHANISMS)]


_DUTIES: Mapping[str, type[Table]] = {
    LocalNumeric.name: NumericDuty,
    LocalLocation.name: LocationDuty,
    LocalTrajectory.name: TrajectoryDuty,
}
_KIND_OF = {name: "numeric" if made.subject == "quantities" else "grid" for name, made in MECHANISMS.items()}


def _sort_of_duty(data: object) -> str:
    name = str(data.get("name")) if isinstance(data, Mapping) else ""
    return _DUTIES.get(name, UnnamedDuty).__name__


AnyDuty = Annotated[
    Annotated[NumericDuty, Tag("NumericDuty")]
    | Annotated[LocationDuty, Tag("LocationDuty")]
    | Annotated[TrajectoryDuty, Tag("TrajectoryDuty")]
    | Annotated[UnnamedDuty, Tag("UnnamedDuty")],
    Discriminator(_sort_of_duty),
]


class CarrierTables(Table):
    dataset: Name = key('"fleet", the name of what is estimated')
    protects: Name = key('"vehicle", what one device stands for')
    version: int = key("a whole number", 1)
    allow_unbounded: bool = key("true or false", False)
    attributes: dict[Annotated[Name, AfterValidator(note_name)], AnyColumn] = key(
        "tables [attributes.NAME], one for each column"
    )
    schedule: ScheduleTable = key("a table [schedule]", ScheduleTable())
    allowance: AllowanceTable = key(
        "a table [allowance] with lifetime, what all reports of a vehicle may reveal: you choose it, it has no default"
    )
    tiers: dict[Name, Positive] = key("a table [tiers] with name = epsilon", {})
    mechanisms: dict[Name, AnyDuty] = key("tables [mechanisms.NAME], one for each kind of report")
    # Keys of a policy for publishing, and their counterparts for devices.
    mechanism: None = refused(_PUBLISHED, "Write one table [mechanisms.NAME] for each kind of report.")
    budget: None = refused(_PUBLISHED, "Devices keep to [allowance]: write day and lifetime there.")
    period: None = refused(_PUBLISHED, "Devices report as [schedule] says.")
    contribution: None = refused(_PUBLISHED, "Devices keep to [allowance], so that reports of one vehicle are bounded.")
    small: None = refused(_PUBLISHED, "Leave it out: devices do not make classes.")
    together: None = refused(_PUBLISHED, "Leave it out: every reading is reported by itself.")
    trip: None = refused(_PUBLISHED, 'Leave it out: paths are reported by a mechanism "local-trajectory".')
    city: None = refused(_PUBLISHED, 'Leave it out: places are the cells of an attribute of kind = "grid".')
    read: None = refused(_PUBLISHED, "Leave it out: devices do not read files.")

    @field_validator("mechanisms")
    @classmethod
    def _fit_together(cls, duties: dict[str, Duty], info: Info) -> dict[str, Duty]:
        """Check all mechanisms together: they have the same tiers and leave nothing out."""
        reading = info.context
        problems: list[Problem] = []
        used: set[str] = set()
        several: dict[str, tuple[str, ...]] = {}
        for name, duty in duties.items():
            tiers = duty.tiers or tuple(reading.table("tiers"))
            if duty.epsilon is None and len(tiers) > 1 and "tiers" in info.data:
                several[name] = tiers
            used.update(duty.attributes or _reported(reading.document, duty.name)[0])
        first = next(iter(several), "")
        for name, tiers in several.items():
            if set(tiers) != set(several[first]):
                what = f"differ from those of {first!r}, but a vehicle has the same tier in all"
                where = f"mechanisms.{name}.tiers"
                problems.append(Problem(what, where=where, remedy="Write the same names, or one."))
        for mechanism in (LocalNumeric.name, LocalLocation.name):
            for name in _reported(reading.document, mechanism)[0]:
                if name not in used:
                    remedy = 'Name it in the attributes of a mechanism that fits, or write role = "drop".'
                    what = "is not reported by any mechanism"
                    problems.append(Problem(what, where=f"attributes.{name}", remedy=remedy))
        if problems:
            raise Flaws(*problems, beside=True)
        return duties
