# SPDX-License-Identifier: Apache-2.0
"""What a policy says about carriers: devices that perturb what they measure before anything leaves them.

Such a policy has a table ``[mechanisms.NAME]`` for each kind of report instead of one ``[mechanism]``, and says when
devices report and how much one may give away. It becomes the task that devices and platform agree on
(``dunnage.local.tasks``), where the bounds of every number are checked once more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from dunnage.errors import PolicyError, Problem
from dunnage.policy.attributes import ROLE_SYNONYMS
from dunnage.policy.tables import Table, canonical, number_of, suggestion
from dunnage.schema import Role

CARRIER_MECHANISMS = ("local-numeric", "local-location", "local-trajectory")
MISSING_WORDS = ("middle", "symbol")
"""What a missing number is reported as: the middle of its domain, or a symbol of its own."""
ONLY_TIER = "all"
"""Name of the one tier of a mechanism that has an epsilon of its own."""

_NUMBER, _PLACE = "numeric", "grid"
_KINDS = (_NUMBER, _PLACE)
_REPORTING_KEYS = {"kind", "domain", "unit", "steps", "missing", "outside", "box", "levels", "area_levels", "columns"}
_MOST_TEXT = 64
_WHOLE = "a whole number"
_POSITIVE = "a number above 0"
_PATH_STEPS = 2
# Keys that a policy for publishing has, and what says the same to devices.
_PUBLISHING_KEYS = {
    "mechanism": "Write one table [mechanisms.NAME] for each kind of report.",
    "budget": "Devices keep to [allowance]: write day and lifetime there.",
    "period": "Devices report as [schedule] says.",
    "contribution": "Devices keep to [allowance], so that reports of one vehicle are bounded.",
    "small": "Leave it out: devices do not make classes.",
    "together": "Leave it out: every reading is reported by itself.",
    "trip": 'Leave it out: paths are reported by a mechanism "local-trajectory".',
    "city": 'Leave it out: places are the cells of an attribute of kind = "grid".',
    "read": "Leave it out: devices do not read files.",
}
_ABSENT = "a report that is refused or left out because of what it says gives that away"


@dataclass(frozen=True, kw_only=True)
class NumberRule:
    """A number that devices report."""

    name: str  # Column
    low: Fraction  # low, high: public bounds; what lies outside is moved to the nearer one
    high: Fraction
    unit: str = ""  # Unit, for people
    steps: int | None = None  # How fine it is rounded, at random; None leaves the usual
    missing: str = "middle"  # `middle` or `symbol`


@dataclass(frozen=True, kw_only=True)
class PlaceRule:
    """Places that devices report as cells of a public grid."""

    name: str  # What they are called; it need not be a column
    box: tuple[Fraction, Fraction, Fraction, Fraction]  # West, south, east and north, in degrees
    levels: int  # levels, area_levels: levels of the quadtree, and how many of them name the area
    area_levels: int = 1
    columns: tuple[str, str] = ("lon", "lat")  # The columns of longitude and latitude


@dataclass(frozen=True, kw_only=True)
class Duty:
    """One kind of report that every device sends at each of its slots."""

    name: str  # What it is called: NAME of the table `[mechanisms.NAME]`
    mechanism: str  # Name of the mechanism
    attributes: tuple[str, ...]  # Names of what is reported
    tiers: tuple[tuple[str, Fraction], ...]  # Name and epsilon of each public tier
    steps: int = 1  # How many places a path has; 1 for all that is no path
    parameters: Mapping[str, bool | int | str] = field(default_factory=dict)  # All other parameters of the mechanism


@dataclass(frozen=True, kw_only=True)
class CarrierPolicy:
    """What devices may report: which numbers and places, by which mechanisms, when, and how much in all.

    Read one with :func:`dunnage.policy.read_carriers`.

    Attributes
    ----------
    dataset, protects, version
        What the task is called, what one device stands for, and the task's number.
    vehicle, time
        Columns that name the vehicle and the moment, where rows of many vehicles are in one file. Neither is reported.
    numbers, places
        What can be reported.
    duties
        What is reported, in the order of the policy.
    schedule
        What ``[schedule]`` says about when; what it leaves out is as usual.
    day, lifetime
        Largest true loss of a vehicle in a day (None: what the schedule spends) and in all.
    allow_unbounded
        Whether mechanisms are allowed whose loss has no bound.
    """

    dataset: str
    protects: str
    vehicle: str
    numbers: tuple[NumberRule, ...]
    places: tuple[PlaceRule, ...]
    duties: tuple[Duty, ...]
    lifetime: Fraction
    day: Fraction | None = None
    time: str | None = None
    schedule: Mapping[str, int | str] = field(default_factory=dict)
    allow_unbounded: bool = False
    version: int = 1
    path: Path | None = field(default=None, compare=False)
    document: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that devices need, each once."""
        found = [self.vehicle, *([self.time] if self.time else []), *(number.name for number in self.numbers)]
        found += [column for place in self.places for column in place.columns]
        return tuple(dict.fromkeys(found))

    def digest(self) -> str:
        """Return the SHA-256 of what the policy says; comments do not count."""
        text = json.dumps(canonical(self.document), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def is_for_devices(document: Mapping[str, Any]) -> bool:
    """Tell whether plain data, in the shape of a policy, is meant for devices.

    Examples
    --------
    >>> is_for_devices({"mechanisms": {"places": {"name": "local-location"}}}), is_for_devices({"mechanism": {}})
    (True, False)
    """
    tables = document.get("mechanisms")
    # [mechanisms] with a name and parameters of its own is a misspelt [mechanism].
    return isinstance(tables, Mapping) and bool(tables) and all(isinstance(item, Mapping) for item in tables.values())


def for_devices_error(path: Path | None) -> PolicyError:
    """Say that a policy cannot be published with, since it is for devices."""
    name = path or "POLICY"
    what = f"this policy is for devices: use dunnage device task {name} -o TASK"
    return PolicyError(str(path or "policy"), [what])


def for_publishing_error(path: Path | None) -> PolicyError:
    """Say that no task can be made of a policy, since it is for publishing."""
    what = f"this policy is for publishing, not for devices: use dunnage publish DATA --policy {path or 'POLICY'}"
    remedy = "A policy for devices has a table [mechanisms.NAME] for each kind of report."
    return PolicyError(str(path or "policy"), [Problem(what, remedy=remedy)])


def carriers_of(document: Mapping[str, Any], path: Path | None) -> CarrierPolicy:
    """Read a policy for devices from checked plain data."""
    if not is_for_devices(document) and "mechanism" in document:
        raise for_publishing_error(path)
    problems: list[Problem] = []
    top = Table(document, "", problems)
    named = {key: top.text(key, says) for key, says in _NAMES.items()}
    version = top.take("version", (int,), _WHOLE, default=1)
    allow_unbounded = top.flag("allow_unbounded", False)
    columns = _read_columns(top)
    schedule = _read_schedule(top, columns)
    day, lifetime = _read_allowance(top)
    duties = _read_duties(top, columns, _read_tiers(top))
    for key, remedy in _PUBLISHING_KEYS.items():
        if key in document:
            top.seen.add(key)
            top.problem(key, "is for publishing, not for devices", remedy)
    top.finish()
    _check_names(top, [("dataset", named["dataset"]), ("protects", named["protects"])])
    if problems:
        raise PolicyError(str(path or "policy"), problems)
    assert lifetime is not None
    return CarrierPolicy(
        **{key: value or "" for key, value in named.items()},
        version=version,
        vehicle=columns.vehicle,
        time=schedule.pop("time", None),
        numbers=tuple(columns.numbers.values()),
        places=tuple(columns.places.values()),
        duties=tuple(duties),
        schedule=schedule,
        day=day,
        lifetime=lifetime,
        allow_unbounded=allow_unbounded,
        path=path,
        document=document,
    )


_NAMES = {
    "dataset": '"fleet", the name of what is estimated',
    "protects": '"vehicle", what one device stands for',
}


def _check_names(table: Table, named: Sequence[tuple[str, str | None]]) -> None:
    for key, name in named:
        if name is not None and not (name and name.strip() == name and name.isprintable() and len(name) <= _MOST_TEXT):
            table.problem(key, "is blank, unprintable or too long", f"Write at most {_MOST_TEXT} printable characters.")


# Attributes


@dataclass
class _Columns:
    """What the columns of a policy were found to be."""

    declared: set[str] = field(default_factory=set)
    identifiers: list[str] = field(default_factory=list)
    numbers: dict[str, NumberRule] = field(default_factory=dict)
    places: dict[str, PlaceRule] = field(default_factory=dict)
    # Names of what would be reported if nothing were wrong with it: that has been noted
    broken: set[str] = field(default_factory=set)
    # Whether some column has no role yet: that has been noted, and the identifier may be among them
    undecided: bool = False

    @property
    def vehicle(self) -> str:
        return self.identifiers[0]

    def reported(self, mechanism: str) -> list[str]:
        """Name what a mechanism can report, in order."""
        return list(self.numbers if mechanism == CARRIER_MECHANISMS[0] else self.places)


def _read_columns(top: Table) -> _Columns:
    columns = _Columns()
    tables = top.take("attributes", (Mapping,), "tables [attributes.NAME], one for each column")
    for name, data in (tables or {}).items():
        columns.declared.add(name)
        _read_column(Table(data, f"attributes.{name}", top.problems), name, columns)
        _check_names(top, [(f"attributes.{name}", name)])
    if tables is not None and len(columns.identifiers) != 1 and not (columns.undecided and not columns.identifiers):
        found = ", ".join(columns.identifiers) or "none"
        remedy = 'Give role = "identifier" to the column that tells vehicles apart, and "drop" to other names.'
        top.problem("attributes", f"one column must be the identifier of vehicles; got {found}", remedy)
    for place in columns.places.values():
        columns.declared |= set(place.columns)
    return columns


def _read_column(table: Table, name: str, columns: _Columns) -> None:
    """Read one column into what is known of all."""
    before = len(table.problems)
    role = table.data.get("role")
    if isinstance(role, str) and role in ROLE_SYNONYMS:
        table.data = {**table.data, "role": ROLE_SYNONYMS[role]}
    role = table.choice("role", tuple(Role))
    if role in (Role.PUBLIC, Role.SENSITIVE):
        remedy = 'Write "quasi-identifier" for what is to be perturbed and reported, else "drop".'
        table.problem("role", f"{role!s} would be sent as it is, and devices send nothing unperturbed", remedy)
        columns.broken.add(name)
    if role == Role.IDENTIFIER:
        columns.identifiers.append(name)
    if role is None:
        columns.undecided = True
        columns.broken.add(name)
        return  # what else it needs depends on its role
    if role != Role.QUASI_IDENTIFIER:
        table.seen |= _REPORTING_KEYS  # how it would be reported does not matter
        table.finish()
        return
    kind = table.choice("kind", _KINDS)
    number = _read_number(table, name) if kind == _NUMBER else None
    place = _read_place(table, name) if kind == _PLACE else None
    if kind is None:
        table.seen.update(table.data)
    table.finish()
    if len(table.problems) > before:
        columns.broken.add(name)
    elif number is not None:
        columns.numbers[name] = number
    elif place is not None:
        columns.places[name] = place


def _read_number(table: Table, name: str) -> NumberRule | None:
    bounds = _numbers(table, "domain", "two numbers [lowest, highest], public bounds", 2)
    unit = table.text("unit", '"km/h", say', default="")
    steps = table.take("steps", (int,), _WHOLE, default=None)
    missing = _device_rule(table, "missing", MISSING_WORDS, "middle")
    _device_rule(table, "outside", ("clamp",), "clamp")
    if bounds is None or missing is None:
        return None
    if bounds[0] >= bounds[1]:
        table.problem("domain", "must begin below where it ends", "Write [lowest, highest].")
    return NumberRule(name=name, low=bounds[0], high=bounds[1], unit=unit or "", steps=steps, missing=missing)


def _device_rule(table: Table, key: str, words: Sequence[str], default: str) -> str | None:
    """Read what becomes of a value that does not fit; devices have fewer choices than a publisher."""
    if table.data.get(key) in ("refuse", "leave-out"):
        table.seen.add(key)
        table.problem(key, f"= {table.data[key]} is not for devices: {_ABSENT}", f"Use {' or '.join(words)}.")
        return None
    return table.choice(key, words, default=default)


def _read_place(table: Table, name: str) -> PlaceRule | None:
    box = _numbers(table, "box", "four numbers [west, south, east, north], in degrees", 4)
    levels = table.take("levels", (int,), "a whole number: 2^(levels - 1) columns and as many rows")
    area_levels = table.take("area_levels", (int,), "a whole number: how many of the levels name the area", default=1)
    columns = table.texts("columns", '["lon", "lat"], the columns of longitude and latitude', default=["lon", "lat"])
    if "missing" in table.data or "outside" in table.data:
        table.seen |= {"missing", "outside"}
        table.problem("missing", "and outside are one symbol of the grid, which is always there", "Leave them out.")
    if columns is not None and (len(columns) != 2 or columns[0] == columns[1]):
        table.problem("columns", "must be two columns", 'Write ["lon", "lat"], say.')
    if box is None or levels is None or area_levels is None or columns is None:
        return None
    west, south, east, north = box
    if not (west < east and south < north):
        remedy = "Write west, south, east, north in degrees, with west below east and south below north."
        table.problem("box", "has no inside", remedy)
    if not 1 <= area_levels <= levels:
        table.problem("area_levels", "must be from 1 to levels", f"Write 1 to {max(levels, 1)}.")
    return PlaceRule(
        name=name,
        box=(west, south, east, north),
        levels=levels,
        area_levels=area_levels,
        columns=columns[:2],  # type: ignore[arg-type]
    )


def _numbers(table: Table, key: str, says: str, num: int) -> list[Fraction] | None:
    items = table.items(key, says)
    if items is None:
        return None
    found = [number for item in items if (number := number_of(item)) is not None]
    if len(found) != num or len(items) != num:
        table.problem(key, f"must be {says}", "Mend the value.")
        return None
    return found


# Tiers, schedule, allowance


def _positive(table: Table, key: str, **options: Any) -> Fraction | None:
    number = table.number(key, _POSITIVE, **options)
    if number is not None and number <= 0:
        table.problem(key, f"must be {_POSITIVE}", "Write 1.0, say.")
        return None
    return number


def _read_tiers(top: Table) -> dict[str, Fraction | None]:
    """Read the public tiers; one that something is wrong with has no epsilon."""
    data = top.take("tiers", (Mapping,), "a table [tiers] with name = epsilon", default={}) or {}
    table = Table(data, "tiers", top.problems)
    _check_names(table, [(name, name) for name in data])
    return {name: _positive(table, name) for name in data}


_SCHEDULE_NUMBERS = {
    "slots_per_day": "how many reports of each kind a day holds",
    "slot_minutes": "how many minutes lie between two moments of a day",
    "lateness_minutes": "how long a report may come late",
    "skew_seconds": "how far clocks may differ",
    "window": "how many slots share an epsilon",
}


def _read_schedule(top: Table, columns: _Columns) -> dict[str, Any]:
    """Return what is said about when devices report, and the column of time if there is one."""
    table = Table(top.take("schedule", (Mapping,), "a table [schedule]", default={}) or {}, "schedule", top.problems)
    found: dict[str, Any] = {
        key: table.take(key, (int,), f"{_WHOLE}: {says}", default=None) for key, says in _SCHEDULE_NUMBERS.items()
    }
    found["closing"] = table.text("closing", '"03:00", when a day closes', default=None)
    found["time"] = table.text("time", '"time", the column of the moment of a reading', default=None)
    table.finish()
    time = found["time"]
    if time is not None and time not in columns.declared:
        what = f"{time!r} is not a declared attribute"
        table.problem("time", what, f'Declare it with role = "drop". {suggestion(time, columns.declared)}')
    elif time in {*columns.numbers, *columns.places, *columns.broken, *columns.identifiers}:
        table.problem("time", f"{time!r} is reported itself, or names vehicles", 'Name a column with role = "drop".')
    return {key: value for key, value in found.items() if value is not None}


def _read_allowance(top: Table) -> tuple[Fraction | None, Fraction | None]:
    says = "a table [allowance] with lifetime, what all reports of a vehicle may give away: yours to choose, no default"
    data = top.take("allowance", (Mapping,), says)
    if data is None:
        return None, None
    table = Table(data, "allowance", top.problems)
    day = _positive(table, "day", default=None)
    lifetime = _positive(table, "lifetime")
    table.finish()
    if day is not None and lifetime is not None and day > lifetime:
        table.problem("day", "exceeds lifetime", "Lower it, or raise lifetime.")
    return day, lifetime


# Mechanisms

_FLAGS = ("as_published", "area_in_clear")
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "local-numeric": ("method", "as_published", "sampled"),
    "local-location": ("method", "as_published", "area_in_clear"),
    "local-trajectory": ("method", "as_published", "area_in_clear", "hops", "steps"),
}


def _read_duties(top: Table, columns: _Columns, tiers: Mapping[str, Fraction | None]) -> list[Duty]:
    tables = top.take("mechanisms", (Mapping,), "tables [mechanisms.NAME], one for each kind of report")
    if not tables:
        return []
    read = [
        _read_duty(Table(data, f"mechanisms.{name}", top.problems), name, columns, tiers)
        for name, data in tables.items()
    ]
    duties = [duty for duty in read if duty is not None]
    _check_names(top, [(f"mechanisms.{name}", name) for name in tables])
    if len(duties) == len(read):
        _check_together(top, duties, columns)
    return duties


def _check_together(top: Table, duties: Sequence[Duty], columns: _Columns) -> None:
    """Check what concerns all mechanisms: that they have the same tiers and leave nothing out."""
    several = [duty for duty in duties if len(duty.tiers) > 1]
    for duty in several[1:]:
        if {name for name, _ in duty.tiers} != {name for name, _ in several[0].tiers}:
            what = f"differ from those of {several[0].name!r}, and a vehicle has the same tier in all"
            top.problem(f"mechanisms.{duty.name}.tiers", what, "Write the same names, or one.")
    used = {name for duty in duties for name in duty.attributes}
    for name in (*columns.numbers, *columns.places):
        if name not in used:
            remedy = 'Name it in the attributes of a mechanism that fits, or write role = "drop".'
            top.problem(f"attributes.{name}", "is reported by no mechanism", remedy)


def _read_duty(table: Table, name: str, columns: _Columns, tiers: Mapping[str, Fraction | None]) -> Duty | None:
    before = len(table.problems)
    mechanism = table.choice("name", CARRIER_MECHANISMS)
    if mechanism is None:  # nobody knows which parameters it would have
        return None
    levels = _read_levels(table, tiers)
    attributes = _read_subject(table, mechanism, columns)
    parameters = {key: value for key in _PARAMETERS[mechanism] if (value := _parameter(table, key)) is not None}
    steps = parameters.pop("steps", _PATH_STEPS) if mechanism == CARRIER_MECHANISMS[2] else 1
    table.finish()
    if len(table.problems) > before or levels is None or attributes is None:
        return None
    return Duty(name=name, mechanism=mechanism, attributes=attributes, tiers=levels, steps=steps, parameters=parameters)


def _parameter(table: Table, key: str) -> Any:
    """Return a parameter as it is written, or None if it is left out."""
    if key == "method":
        return table.text(key, '"auto", say', default=None)
    if key in _FLAGS:
        return table.flag(key, False) or None
    return table.take(key, (int,), _WHOLE, default=None)


def _read_levels(table: Table, tiers: Mapping[str, Fraction | None]) -> tuple[tuple[str, Fraction], ...] | None:
    """Read the epsilon of a mechanism, or its tiers; all of them if it says nothing."""
    if "epsilon" in table.data and "tiers" in table.data:
        table.seen |= {"epsilon", "tiers"}
        table.problem("epsilon", "and tiers are both given", "Keep one of them.")
        return None
    if "epsilon" in table.data:
        epsilon = _positive(table, "epsilon")
        return None if epsilon is None else ((ONLY_TIER, epsilon),)
    chosen = table.texts("tiers", 'names of [tiers], such as ["basic", "strict"]', default=list(tiers))
    table.seen.add("epsilon")
    if chosen is None:
        return None
    if not chosen:
        remedy = "Write epsilon = ..., or [tiers]: what it promises is yours to choose, so it has no default."
        table.problem("epsilon", "is missing, and there are no [tiers]", remedy)
    if len(set(chosen)) < len(chosen):
        table.problem("tiers", "names a tier twice", "Name each once.")
    for name in chosen:
        if name not in tiers:
            table.problem("tiers", f"{name!r} is not a tier", suggestion(name, tiers))
    known = [(name, tiers.get(name)) for name in dict.fromkeys(chosen)]
    return tuple((name, epsilon) for name, epsilon in known if epsilon is not None) or None


def _read_subject(table: Table, mechanism: str, columns: _Columns) -> tuple[str, ...] | None:
    """Read what a mechanism reports; all that fits if it says nothing."""
    fitting = columns.reported(mechanism)
    chosen = table.texts("attributes", "a list of names of attributes", default=None)
    numeric = mechanism == CARRIER_MECHANISMS[0]
    kind = _NUMBER if numeric else _PLACE
    if chosen is None and "attributes" in table.data:
        return None
    for name in chosen or ():
        if name not in fitting and name not in columns.broken:
            what = f"{name!r} is not a quasi-identifier of kind = {kind!r}, as {mechanism} needs"
            table.problem("attributes", what, suggestion(name, fitting))
    found = tuple(chosen if chosen is not None else fitting)
    if len(set(found)) < len(found):
        table.problem("attributes", "names one twice", "Name each once.")
    if not found and not columns.broken:
        remedy = f'Declare one with role = "quasi-identifier" and kind = "{kind}".'
        table.problem("attributes", f"there is nothing that {mechanism} could report", remedy)
    if not numeric and len(found) > 1:
        what = f"{mechanism} reports the cells of one grid, and there are {len(found)}"
        table.problem("attributes", what, f'Choose one: attributes = ["{found[0]}"], say.')
    return found
