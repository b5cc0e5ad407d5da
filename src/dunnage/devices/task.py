# SPDX-License-Identifier: Apache-2.0
"""Task: what devices and platform agree on, byte for byte, before anything is reported.

A task states what vehicles report (numbers with public bounds, places of a public grid), by which mechanism, in which
public tiers, when, and how much a vehicle may give away in a day and in its lifetime. Its canonical form is JSON with
sorted keys and without floating-point numbers (decimals are text). Its SHA-256 digest is part of every report, so a
report for one task never counts for another.

All times are UTC: day ``d`` is the ``d``-th day after 1 January 1970, and a slot is a moment of a day, counted from
midnight in steps of ``slot_minutes``.

A task file may also name the columns of files that commands read (:class:`FileColumns`). They help the owner of such a
file, and are not part of what is agreed: neither the digest nor a certificate contains them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import date
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from dunnage.devices.numbers import LocalNumeric
from dunnage.devices.paths import LocalTrajectory
from dunnage.devices.places import LocalLocation, Planar
from dunnage.devices.subjects import (
    MAX_TEXT,
    Described,
    Grid,
    Quantity,
    Tier,
    check_whole,
    number_text,
    set_number,
    set_text,
    task_error,
)
from dunnage.errors import ParameterError, TaskError
from dunnage.exact import Json, shown
from dunnage.noise.source import Noise

FORMAT = 1
_KIND = "dunnage task"
PREFIX_BYTES = 8  # bytes of the task's digest in each report
MAX_BYTES = 1 << 20
MAX_PURPOSES = 16
MAX_QUANTITIES = 64
MAX_TIERS = 32
MAX_PARAMETERS = 16
MINUTES_PER_DAY = 1440
SECONDS_PER_DAY = 86_400
MAX_DAYS = 2_932_896  # the last day of the year 9999, counted from 1 January 1970
FIRST_DAY, LAST_DAY = 18_262, 84_370  # 1 January 2020 and 31 December 2200: days outside show that a clock is wrong
Mechanism = LocalNumeric | LocalLocation | LocalTrajectory
MECHANISMS: Mapping[str, type[Mechanism]] = {kind.name: kind for kind in (LocalNumeric, LocalLocation, LocalTrajectory)}
Parameter = bool | int | str
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Purpose(Described):
    """One reporting duty: at each slot a vehicle sends exactly one report for it."""

    name: str  # for example "telemetry", "places" or "paths"
    mechanism: str  # one of MECHANISMS
    tiers: tuple[Tier, ...]  # a vehicle has one tier; a purpose with one tier is the same for all vehicles
    parameters: Mapping[str, Parameter] = field(default_factory=dict, hash=False)  # others of the mechanism
    quantities: tuple[Quantity, ...] = ()  # the numbers, for a mechanism of numbers
    grid: Grid | None = None  # the grid, for the other mechanisms
    steps: int = 1  # number of places in a path

    def __post_init__(self) -> None:
        set_text(self, "name", "the name of a purpose")
        if not isinstance(self.mechanism, str) or self.mechanism not in MECHANISMS:
            raise task_error(
                f"the mechanism of {self.name} does not exist", self.mechanism, f"Use {', '.join(MECHANISMS)}."
            )
        _set_items(self, "tiers", Tier, least=1, most=MAX_TIERS)
        _set_items(self, "quantities", Quantity, least=0, most=MAX_QUANTITIES)
        kind = MECHANISMS[self.mechanism]
        numeric = kind.subject == "quantities"
        if numeric != bool(self.quantities) or numeric != (self.grid is None):
            needs = "quantities and no grid" if numeric else "a grid and no quantities"
            raise TaskError(f"{self.name} needs {needs}, because its mechanism is {self.mechanism}.")
        if self.grid is not None and not isinstance(self.grid, Grid):
            raise task_error(
                f"grid of {self.name} must be a Grid", type(self.grid).__name__, "Make one with Grid(...)."
            )
        check_whole(self.steps, f"steps of {self.name} ({self.mechanism})", *kind.num_steps)
        given = self.parameters
        if not isinstance(given, Mapping) or len(given) > MAX_PARAMETERS:
            raise task_error(
                f"parameters of {self.name} must be a table of at most {MAX_PARAMETERS} values", given, "Shorten it."
            )
        for key, value in given.items():
            short = (
                len(value) <= MAX_TEXT if isinstance(value, str) else isinstance(value, int) and abs(value) < 1 << 63
            )
            if not isinstance(key, str) or not key.isidentifier() or len(key) > MAX_TEXT or not short:
                raise task_error(
                    f"each parameter of {self.name} must be a short text, a whole number, true or false", key, "Fix it."
                )
            if key in ("epsilon", "tiers", "quantities", "grid", "steps"):
                raise task_error(
                    f"one of the parameters of {self.name} is a field of the purpose", key, "Move it there."
                )
        object.__setattr__(self, "parameters", {key: given[key] for key in sorted(given)})

    def to_dict(self) -> dict[str, Json]:
        data: dict[str, Json] = {**super().to_dict(), "parameters": dict(self.parameters)}
        left_out = {"quantities": [], "steps": 1}  # not written at their defaults
        return {name: value for name, value in data.items() if name not in left_out or value != left_out[name]}


def _set_items(owner: Any, name: str, kind: type, *, least: int, most: int) -> None:
    given: object = getattr(owner, name)
    items = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes) else ()
    if not least <= len(items) <= most or not all(isinstance(item, kind) for item in items):
        raise task_error(f"{name} must be {least} to {most} values of {kind.__name__}", given, "List them.")
    names = [item.name for item in items]
    if len(set(names)) < len(names):
        raise task_error(f"{name} must have different names", names, "Rename one.")
    object.__setattr__(owner, name, items)


@dataclass(frozen=True, kw_only=True)
class Schedule(Described):
    """When a vehicle reports, and until when a report counts; all in UTC."""

    # Before each day a device chooses slots_per_day of its moments, uniformly at random, and never moves them. With
    # hours, the whole slot, the slot_minutes up to its moment, lies in them.

    slots_per_day: int = 1  # reports of each purpose in a day
    slot_minutes: int = 5  # minutes between the moments of a day; divides a day evenly
    lateness_minutes: int = 60  # how long after its moment a slot may still be reported
    closing: str = "03:00"  # time of the *next* day at which a day closes: later reports of the day are refused
    # How far clocks may differ: a collector accepts reports that much earlier and later, and a device carries on if its
    # clock goes back by less.
    skew_seconds: int = 120
    window: int | None = None  # with w, the stated epsilon covers any w consecutive slots: each has epsilon / w
    hours: tuple[str, str] | None = None  # working hours, such as ("06:00", "20:00"); they may go past midnight
    days: tuple[str, str] | None = None  # first and last day of the collection, such as ("2026-11-01", "2026-11-30")

    def __post_init__(self) -> None:
        check_whole(self.slot_minutes, "slot_minutes", 1, MINUTES_PER_DAY)
        if MINUTES_PER_DAY % self.slot_minutes:
            raise task_error("slot_minutes must divide a day of 1440 minutes", self.slot_minutes, "Try 5.")
        if self.hours is not None:
            hours: object = self.hours
            if not isinstance(hours, list | tuple) or len(hours) != 2:
                raise task_error("hours must be two times of day", hours, 'For example, write ["06:00", "20:00"].')
            object.__setattr__(self, "hours", tuple(hours))
            start, end = (_minutes_of(time, "hours") for time in hours)
            if (end - start) % MINUTES_PER_DAY < self.slot_minutes or not self.moments:
                raise task_error(
                    f"no slot of {self.slot_minutes} minutes fits into the hours",
                    f"{hours[0]} to {hours[1]}",
                    "Widen them, shorten slot_minutes, or leave hours out for the whole day.",
                )
        if self.days is not None:
            days: object = self.days
            object.__setattr__(self, "days", tuple(days) if isinstance(days, list | tuple) else days)
            if not isinstance(days, list | tuple) or len(days) != 2 or self.span[0] > self.span[1]:
                raise task_error("days must be a first and a last day", days, 'Try ["2026-11-01", "2026-11-30"].')
        check_whole(self.slots_per_day, "slots_per_day", 1, len(self.moments))
        check_whole(self.lateness_minutes, "lateness_minutes", 1, MINUTES_PER_DAY)
        check_whole(self.skew_seconds, "skew_seconds", 0, SECONDS_PER_DAY // 2)
        _minutes_of(self.closing, "closing")
        if self.window is not None:
            check_whole(self.window, "window", 1, 10**6)

    @property
    def num_moments(self) -> int:
        return MINUTES_PER_DAY // self.slot_minutes

    @cached_property
    def moments(self) -> Sequence[int]:
        return tuple(filter(self.chooses, range(self.num_moments))) if self.hours else range(self.num_moments)

    @cached_property
    def span(self) -> tuple[int, int]:
        """The first and the last day on which devices report, counted from 1 January 1970."""
        first, last = map(day_number, self.days) if self.days else (FIRST_DAY, LAST_DAY)
        return first, last

    def covers(self, day: int) -> bool:
        return self.span[0] <= day <= self.span[1]

    def chooses(self, slot: int) -> bool:
        if not 0 <= slot < self.num_moments or self.hours is None:
            return 0 <= slot < self.num_moments
        start, end = (_minutes_of(time, "hours") for time in self.hours)
        since, length = slot * self.slot_minutes - start, (end - start) % MINUTES_PER_DAY
        return self.slot_minutes <= since % MINUTES_PER_DAY <= length

    def moment(self, day: int, slot: int) -> int:
        return day * SECONDS_PER_DAY + slot * self.slot_minutes * 60

    def closes(self, day: int) -> int:
        return (day + 1) * SECONDS_PER_DAY + _minutes_of(self.closing, "closing") * 60

    def deadline(self, day: int, slot: int) -> int:
        return min(self.moment(day, slot) + self.lateness_minutes * 60, self.closes(day))

    def accepts(self, day: int, slot: int, now: float | None = None) -> bool:
        """Return whether a collector accepts a report of a slot, of a day of the task, and if given, at that time."""
        early, late = self.accepted_times(day, slot)
        return self.covers(day) and self.chooses(slot) and (now is None or early <= now <= late)

    def accepted_times(self, day: int, slot: int) -> tuple[int, int]:
        """Return from when until when a collector accepts a report of a slot."""
        return self.moment(day, slot) - self.skew_seconds, self.deadline(day, slot) + self.skew_seconds

    def draw_slots(self, noise: Noise) -> tuple[int, ...]:
        """Sample the slots of a day: all sets of ``slots_per_day`` moments are equally likely."""
        chosen: set[int] = set()
        # Floyd's sampling: one random number for each slot, whatever the number of moments.
        for last in range(len(self.moments) - self.slots_per_day, len(self.moments)):
            place = noise.below(last + 1)
            chosen.add(last if place in chosen else place)
        return tuple(self.moments[place] for place in sorted(chosen))


def day_number(text: object) -> int:
    try:
        if not isinstance(text, str) or len(text) != 10:
            raise ValueError
        number = date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        number = -1
    if not FIRST_DAY <= number <= LAST_DAY:
        raise task_error("a day must be a date from 2020 to 2200", text, "For example, write 2026-11-01.")
    return number


def _minutes_of(time: object, what: str) -> int:
    digits = isinstance(time, str) and len(time) == 5 and time[2] == ":" and (time[:2] + time[3:])
    if not digits or not (digits.isascii() and digits.isdigit()) or digits > "2359" or digits[2:] > "59":
        raise task_error(f"{what} must be a time of day, HH:MM", time, 'For example, write "03:00".')
    return int(digits[:2]) * 60 + int(digits[2:])


@dataclass(frozen=True, kw_only=True)
class Limits(Described):
    """The most that a vehicle may give away, over all purposes together, as true composed loss."""

    lifetime: Fraction
    day: Fraction | None = None  # by default, what the schedule spends in a day
    # Allow purposes without a bound on their loss (for example with an area in clear). They are counted, and the total
    # is "no bound".
    allow_unbounded: bool = False

    def __post_init__(self) -> None:
        for name in ("lifetime", "day") if self.day is not None else ("lifetime",):
            if set_number(self, name, f"the {name} limit") <= 0:
                raise task_error(f"the {name} limit must be above 0", number_text(getattr(self, name)), "Try 1.")
        if self.day is not None and self.day > self.lifetime:
            raise task_error("the day limit exceeds the lifetime limit", number_text(self.day), "Lower it.")
        if not isinstance(self.allow_unbounded, bool):
            raise task_error("allow_unbounded must be true or false", self.allow_unbounded, "Or leave it out.")


@dataclass(frozen=True, kw_only=True)
class FileColumns(Described):
    vehicle: str = "vehicle"  # Which vehicle a row is about
    time: str = "time"  # The moment of a row
    places: tuple[str, str] = ("lon", "lat")  # Longitude and latitude

    def __post_init__(self) -> None:
        places: object = self.places
        if not isinstance(places, tuple) or len(places) != 2 or not all(isinstance(name, str) for name in places):
            raise ParameterError(
                f"place columns must be two names, longitude before latitude, such as lon,lat. Got {shown(places)}."
            )
        names = [self.vehicle, self.time, *self.places]
        if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
            raise ParameterError(
                f"vehicle, time and place columns must have different names. Got {', '.join(map(str, names))}."
            )

    def numbers_of(self, task: Task) -> list[str]:
        names = [quantity.name for purpose in task.purposes for quantity in purpose.quantities]
        names += self.places if any(purpose.grid for purpose in task.purposes) else ()
        return list(dict.fromkeys(names))


@dataclass(frozen=True, kw_only=True)
class Task(Described):
    """What devices and platform agree on.

    Raises
    ------
    TaskError
        If the task contradicts itself, or if the stated epsilons of a day exceed the day's limit. Only
        :func:`dunnage.devices.client.check_task`, which knows the mechanisms, checks that the *true* loss fits.

    Examples
    --------
    >>> places = Purpose(name="places", mechanism="local-location", tiers=(Tier(name="all", epsilon="1"),),
    ...                  grid=Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3))
    >>> task = Task(dataset="fleet", purposes=(places,), schedule=Schedule(), limits=Limits(lifetime="365"))
    >>> Task.from_json(task.to_json()).digest == task.digest
    True
    """

    format: ClassVar[int] = FORMAT
    dataset: str  # name of the dataset to estimate
    purposes: tuple[Purpose, ...]  # what vehicles report
    schedule: Schedule  # when they report
    limits: Limits  # how much a vehicle may give away
    protects: str = "vehicle"  # what one device stands for
    version: int = 1  # number of this task among the tasks of the dataset. Any change makes another task
    # names of columns of files that devices read. Not agreed, so not part of the digest
    file_columns: FileColumns = field(default=FileColumns(), compare=False)

    def __repr__(self) -> str:
        names = ", ".join(purpose.name for purpose in self.purposes)
        return f"Task({self.dataset!r}, {names}, {self.digest[:12]})"

    def __post_init__(self) -> None:
        set_text(self, "dataset", "the name of the dataset")
        set_text(self, "protects", "what a task protects")
        check_whole(self.version, "the version of a task", 1, 2**31 - 1)
        _set_items(self, "purposes", Purpose, least=1, most=MAX_PURPOSES)
        for name, kind in (("schedule", Schedule), ("limits", Limits), ("file_columns", FileColumns)):
            if not isinstance(getattr(self, name), kind):
                raise task_error(f"{name} must be a {kind.__name__}", type(getattr(self, name)).__name__, "Make one.")
        several = {tuple(sorted(tier.name for tier in p.tiers)) for p in self.purposes if len(p.tiers) > 1}
        if len(several) > 1:
            raise task_error(
                "purposes with several tiers must have the same ones", sorted(several), "List the same names in each."
            )
        limit = self.limits.day or self.limits.lifetime
        for name in self.tier_names:
            tiers = [self.slot_tier(purpose, name) for purpose in self.purposes]
            # A planar law states epsilon per kilometre, which does not add up with the others.
            plain_ones = (
                t for t, p in zip(tiers, self.purposes, strict=True) if p.parameters.get("method") != Planar.name
            )
            stated = self.schedule.slots_per_day * sum((tier.epsilon for tier in plain_ones), Fraction(0))
            if stated > limit:
                raise task_error(
                    f"the scheduled slots of a day do not fit the limit {number_text(limit)}",
                    f"epsilon {number_text(stated)} in tier {name}",
                    "Report less often, at a smaller epsilon, or raise the limit.",
                )

    @property
    def tier_names(self) -> tuple[str, ...]:
        """Tiers of vehicles: those of the purposes with several, else the one of the first purpose."""
        several = [purpose for purpose in self.purposes if len(purpose.tiers) > 1]
        return tuple(tier.name for tier in (several or self.purposes)[0].tiers)

    def tier_index(self, purpose: Purpose, tier: str) -> int:
        """Return in which tier of a purpose a vehicle of the given tier reports."""
        if tier not in self.tier_names:
            raise task_error("the task has no such tier", tier, f"The task has: {', '.join(self.tier_names)}.")
        return [own.name for own in purpose.tiers].index(tier) if len(purpose.tiers) > 1 else 0

    def slot_tiers(self, purpose: Purpose) -> tuple[Tier, ...]:
        """Return the tiers of a purpose with the epsilon of one slot, as its mechanism needs them."""
        window = self.schedule.window or 1
        return tuple(replace(tier, epsilon=tier.epsilon / window) for tier in purpose.tiers)

    def slot_tier(self, purpose: Purpose, tier: str) -> Tier:
        return self.slot_tiers(purpose)[self.tier_index(purpose, tier)]

    def purpose_index(self, name: str) -> int:
        names = [purpose.name for purpose in self.purposes]
        if name not in names:
            raise task_error("the task has no such purpose", name, f"The task has: {', '.join(names)}.")
        return names.index(name)

    def to_dict(self) -> dict[str, Json]:
        agreed = {name: value for name, value in super().to_dict().items() if name != "file_columns"}
        return {"format": FORMAT, "kind": _KIND, **agreed}

    def to_bytes(self) -> bytes:
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":")).encode("ascii")

    def to_json(self) -> str:
        """Write the task in a form that people can read, with unusual names of columns, which the digest leaves out."""
        unusual = {} if self.file_columns == FileColumns() else {"file_columns": self.file_columns.to_dict()}
        return json.dumps(self.to_dict() | unusual, sort_keys=True, indent=2) + "\n"

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def prefix(self) -> bytes:
        return bytes.fromhex(self.digest)[:PREFIX_BYTES]

    @classmethod
    def from_json(cls, text: str | bytes) -> Task:
        """Read a task strictly: no unknown keys, no repeated keys, nothing too large."""
        data = parse_json(text, what="a task", most_bytes=MAX_BYTES, error=TaskError)
        if isinstance(data, dict) and "format" in data and data["format"] != FORMAT:
            raise task_error(
                f"this version reads tasks of format {FORMAT}", data["format"], "Update Dunnage, or rewrite the task."
            )
        required = ("format", "kind", "dataset", "protects", "version", "purposes", "schedule", "limits")
        given = check_keys(data, "a task", required, ("file_columns",), TaskError)
        if given["kind"] != _KIND or type(given["format"]) is not int:
            raise task_error("this is not a task", given["kind"], "Use a file that `dunnage device task` wrote.")
        schedule = _read(Schedule, given["schedule"], "schedule", all_due=True)
        limits = _read(Limits, given["limits"], "limits")
        purposes = [_purpose(item) for item in _listed(given["purposes"], "purposes", MAX_PURPOSES)]
        plain = {name: given[name] for name in ("dataset", "protects", "version")}
        try:
            columns = _read(
                FileColumns,
                given.get("file_columns", {}),
                "file_columns",
                places=lambda names: tuple(names) if isinstance(names, list) else names,
            )
        except ParameterError as error:
            raise TaskError(str(error)) from None
        return cls(**plain, purposes=tuple(purposes), schedule=schedule, limits=limits, file_columns=columns)


def parse_json(text: str | bytes, *, what: str, most_bytes: int, error: Callable[[str], Exception]) -> Any:
    """Read JSON without floating-point numbers and without repeated keys, up to a size."""
    if len(text) > most_bytes:
        raise error(f"{what} has at most {most_bytes} bytes. Got {len(text)}. Use the right file.")

    def no_number(text: str) -> None:
        raise ValueError(f"the number {shown(text)}, but decimals must be written as text")

    def different_keys(pairs: list[tuple[str, Any]]) -> dict[str, object]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise ValueError("a key that appears twice")
        return table

    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        return json.loads(decoded, parse_float=no_number, parse_constant=no_number, object_pairs_hook=different_keys)
    except (ValueError, RecursionError) as problem:
        reason = "lists nested too deeply" if isinstance(problem, RecursionError) else "text that is not JSON"
        says = str(problem) if type(problem) is ValueError else reason
        raise error(f"{what} must be JSON from Dunnage. Got {says[:100]}. Fetch or write it again.") from None


def check_keys(
    data: object, where: str, required: Collection[str], optional: Collection[str], error: Callable[[str], Exception]
) -> dict[str, Any]:
    """Check that plain data is a table with the given keys and no others; its values may have any type."""
    if not isinstance(data, dict):
        raise error(f"{where} must be a table. Got {type(data).__name__}. Write it as {{...}}.")
    missing = sorted(set(required) - set(data))
    unknown = sorted(set(data) - set(required) - set(optional))
    if missing:
        raise error(f"{where} lacks {', '.join(missing)}. Got {shown(sorted(data))}. Add what is missing.")
    if unknown:
        keys = ", ".join((*required, *optional))
        raise error(f"{where} has an unknown key. Got {shown(unknown[0])}. The keys are {keys}.")
    return data


def _read(kind: type[_T], data: object, where: str, *, all_due: bool = False, **changes: Callable[..., object]) -> _T:
    """Build a class from plain data by its fields (``all_due``: even those with a default); decimals must be text."""
    due = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(kind)}  # type: ignore[arg-type]
    if all_due:
        due = {f.name: f.default is not None for f in fields(kind)}  # type: ignore[arg-type]
    required, optional = ([name for name in due if due[name] == wanted] for wanted in (True, False))
    given = check_keys(data, where, required, optional, TaskError)
    for item in fields(kind):  # type: ignore[arg-type]
        if item.name in given and str(item.type).startswith("Fraction"):
            _check_decimal(given[item.name], item.name)
    return kind(**given | {name: change(given[name]) for name, change in changes.items() if name in given})


def _purpose(data: object) -> Purpose:
    def listed(kind: type[_T], items: object, what: str, where: str) -> tuple[_T, ...]:
        return tuple(_read(kind, item, where) for item in _listed(items, what))

    def box(sides: object) -> tuple[object, ...]:
        for side in _listed(sides, "box", 4):
            _check_decimal(side, "a side of the box")
        return tuple(_listed(sides, "box", 4))

    return _read(
        Purpose,
        data,
        "a purpose",
        tiers=lambda items: listed(Tier, items, "tiers", "a tier"),
        quantities=lambda items: listed(Quantity, items, "quantities", "a quantity"),
        grid=lambda grid: _read(Grid, grid, "a grid", box=box),
    )


def _listed(data: object, what: str, most: int = MAX_QUANTITIES) -> list[object]:
    if not isinstance(data, list) or len(data) > most:
        raise task_error(f"{what} must be a list of at most {most}", type(data).__name__, "Write it as [...].")
    return data


def _check_decimal(value: object, name: str) -> None:
    if not (isinstance(value, str) and len(value) <= 200):
        raise task_error(f"{name} must be a decimal written as text", value, 'For example, write "0.5".')
