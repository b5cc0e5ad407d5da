# SPDX-License-Identifier: Apache-2.0
"""Schema: the attributes of a dataset, the role of each, and what one protected record is. Public facts only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, get_args

from dunnage.errors import ParameterError, Problem
from dunnage.exact import shown
from dunnage.model.documents import suggestion
from dunnage.model.domains import Category, Domain, Graph, Numeric, Ordinal, Stops, Tree, Windows
from dunnage.model.hierarchies import Prefixes
from dunnage.model.periods import DateFormat
from dunnage.model.trips import END_COLUMNS, Level, Trip, Universe

if TYPE_CHECKING:
    from dunnage.model.categories import Categories
    from dunnage.model.city import City

RESERVED_NAMES = ("row", "class_id", "count", "bin", "source_row")
GENERALISED_SUFFIXES = ("_lower", "_upper", "_mean")
DIAMETER_SUFFIX = "_diameter"
COUNTS_SUFFIX = "_counts"
Missing = Literal["refuse", "leave-out"]
Outside = Literal["refuse", "leave-out", "clamp"]
Span = Literal["day", "period"]
MISSING_RULES: tuple[str, ...] = get_args(Missing)
OUTSIDE_RULES: tuple[str, ...] = get_args(Outside)
CONTRIBUTION_SPANS: tuple[str, ...] = get_args(Span)
MERGE_RULES = ("sum", "same")
TRIP, RIDER = "trip", "rider"
_UNIT, _MAX_UNIT = re.compile(r"[^\W_]+([ -][^\W_]+){0,2}"), 40
MAX_CONTRIBUTED = 2**31 - 1
COUNT = "count"
_DOMAIN_REMEDIES = {
    "numeric": "domain = [lowest, highest]",
    "category": 'domain = ["a", "b"], all values that may occur',
}
_SPREADSHEET_STARTS = ("=", "+", "-", "@", "'")


class Role(StrEnum):
    """What an attribute means to an attacker, which decides how it is released."""

    IDENTIFIER = "identifier"
    QUASI_IDENTIFIER = "quasi-identifier"
    SENSITIVE = "sensitive"
    PUBLIC = "public"
    DROP = "drop"


_HIDDEN = (Role.IDENTIFIER, Role.DROP)


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """One column: its role, kind and public domain, and what to do with values that do not fit."""

    name: str  # name, role: column name and role
    role: Role
    # `numeric`, `ordinal`, `category`, `tree`, `graph`, `stop` or `time`; None means that of the domain or, without a
    # domain, any type, released unchanged
    kind: str | None = None
    domain: Domain | None = None  # the public domain, if there is one
    missing: str = "refuse"  # `refuse` or `leave-out`
    outside: str = "refuse"  # `refuse`, `leave-out` or (numeric only) `clamp`
    # `refuse` or `leave-out`: for cells that are not what the kind says, such as text or infinity for a number
    unreadable: str = "refuse"
    # its value where rows are merged: their `sum`, or the value that is the `same` in all; None if it is not released
    # or nothing is merged. The schema sets it
    merged: str | None = None
    # whether it is the number of trips of a row; it may then be called `count`. The schema sets it for all other names
    counts: bool = False
    format: str | None = None  # how dates are written in a column of times, if not as 2026-11-15; see `DateFormat`
    # how cells become values of the domain, if they are written differently: codes that are shortened, or times of day
    # that become minutes
    cells: Prefixes | Windows | None = None

    def __post_init__(self) -> None:
        if self.format is not None:
            DateFormat(self.format)
        if self.role not in tuple(Role):
            raise ParameterError(f"role must be one of {', '.join(Role)}. Got {self.role!r} for {self.name!r}.")
        object.__setattr__(self, "role", Role(self.role))
        counts = self.counts and self.name == COUNT
        if self.role is not Role.DROP and self.name in RESERVED_NAMES and not counts:
            raise ParameterError(
                f"the column name {self.name!r} is reserved in releases ({', '.join(RESERVED_NAMES)}). "
                "Rename the column in the data and the policy."
            )
        start = self.name.lstrip()
        bad_name = not start or start.startswith(_SPREADSHEET_STARTS) or not self.name.isprintable()
        if self.role is not Role.DROP and bad_name:
            raise ParameterError(
                f"column {self.name!r}: the name is blank, unprintable or a spreadsheet formula. Rename it."
            )
        if self.role is Role.QUASI_IDENTIFIER and self.domain is None:
            remedy = _DOMAIN_REMEDIES.get(self.kind or "", 'kind = "numeric" and domain = [lowest, highest]')
            needs = f"a public domain, because it is {self.kind}" if self.kind else "a kind and a public domain"
            raise ParameterError(f"quasi-identifier {self.name!r} needs {needs}. Write {remedy}.")
        if self.domain is not None and self.kind is None:
            object.__setattr__(self, "kind", self.domain.kind)
        if self.domain is not None and self.domain.kind != self.kind:
            raise ParameterError(
                f"attribute {self.name!r} has kind {self.kind!r}, but a domain of kind {self.domain.kind!r}."
            )
        allowed = {"missing": MISSING_RULES, "outside": OUTSIDE_RULES, "unreadable": MISSING_RULES}
        for name, rules in {**allowed, "merged": (None, *MERGE_RULES)}.items():
            if (rule := getattr(self, name)) not in rules:
                words = ", ".join(filter(None, rules))
                raise ParameterError(f"{name} must be one of {words}. Got {rule!r} for {self.name!r}.")
        if self.outside == "clamp" and (not isinstance(self.domain, Numeric) or self.domain.clock):
            raise ParameterError(f"outside = clamp needs a numeric domain, and {self.name!r} has none. Use leave-out.")

    @property
    def numeric(self) -> Numeric:
        """The numeric domain; an error for any other kind."""
        if not isinstance(self.domain, Numeric):
            raise ParameterError(f"attribute {self.name!r} needs kind = numeric and a domain.")
        return self.domain

    @property
    def exception(self) -> str:
        """What a receiver must know about moved values or omitted rows; empty if there are none."""
        if self.role in _HIDDEN:
            return ""
        rules = []
        if self.merged and self.role is Role.QUASI_IDENTIFIER:
            how = f"and their {self.name} added up" if self.merged == "sum" else f"all of them of the same {self.name}"
            rules.append(f"rows that travel together were merged into one record, {how}")
        if self.outside == "clamp":
            how = " before counting" if self.counts else ""
            rules.append(f"values of {self.name} outside its domain were moved to the nearest end{how}")
        if self.outside == "leave-out":
            rules.append(f"records with {self.name} outside its domain were left out")
        if self.missing == "leave-out":
            rules.append(f"records without {self.name} were left out")
        if self.unreadable == "leave-out":
            rules.append(f"records with {self.name} that cannot be read were left out")
        return "; ".join(rules)

    def describe(self) -> dict[str, object]:
        """Return name, role, domain and all that is not the default as plain data."""
        domain = {"domain": self.domain.describe()} if self.domain is not None else {}
        rules = {key: getattr(self, key) for key in ("missing", "outside", "unreadable")}
        departs = {key: rule for key, rule in rules.items() if rule != "refuse"}
        kind = {"kind": self.kind} if self.kind else {}
        merged = {"merged": self.merged} if self.merged else {}
        return {"name": self.name, "role": str(self.role), **kind, **domain, **departs, **merged}


@dataclass(frozen=True, kw_only=True)
class Contribution:
    person: str
    max: int
    per: str
    # Trips of one rider in all that two noisy sums see, to correct counts for the trips that max drops
    total_max: int | None = field(default=None, repr=False)
    per_cell: int | None = field(default=None, repr=False)  # trips of one rider that count in one cell, at most

    def __post_init__(self) -> None:
        bounds = (("max", self.max, 1), ("total_max", self.total_max, 2), ("per_cell", self.per_cell, 1))
        for name, value, least in bounds:
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            if name == "max" or value is not None:
                if not whole or not least <= value <= MAX_CONTRIBUTED:  # type: ignore[operator]
                    wrong = f"{name} must be a number of trips from {least} to {MAX_CONTRIBUTED}. Got {shown(value)}."
                    raise ParameterError(wrong)
                object.__setattr__(self, name, int(value))  # type: ignore[arg-type]
        if self.per not in CONTRIBUTION_SPANS:
            raise ParameterError(f"per must be one of {', '.join(CONTRIBUTION_SPANS)}. Got {shown(self.per)}.")


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The attributes of a dataset in order, and what one protected record is."""

    attributes: tuple[Attribute, ...]  # all declared columns
    protects: str  # what one record stands for: `package`, `trip`
    # column with a common value for all rows of one record, if rows are merged. Numeric quasi-identifiers are added up;
    # every other released value must be the same in all rows of a record
    together: str | None = None
    # identifier of a person, if a person may have several records: k then counts persons. With a contribution it is
    # that of the contribution
    person: str | None = None
    trip: Trip | None = None  # the columns that describe a trip, if rows are trips or counts of trips
    # zones of stops and modes of pairs of stops, if trips are counted by them
    city: City | None = field(default=None, repr=False)
    contribution: Contribution | None = None  # the maximum number of counted trips of a rider, if riders are protected
    # how many dates one release covers, as the owner states it: in all, or for each label of days. None if only the
    # calendar says so, or nothing
    dates: int | Mapping[str, int] | None = None

    def __repr__(self) -> str:
        return f"Schema({len(self.attributes)} columns, protects {self.protects!r})"

    def __post_init__(self) -> None:
        if self.contribution is not None:
            if self.person not in (None, self.contribution.person):
                raise ParameterError("person and contribution name different columns. Use the same one.")
            object.__setattr__(self, "person", self.contribution.person)
        if problems := [*self._problems(), *self._trip_problems()]:
            raise ParameterError(str(replace(problems[0], where="")), problems=problems)
        completed = []
        for attribute in self.attributes:
            merged = None
            if self.together is not None and attribute.role not in _HIDDEN:
                merged = "sum" if _adds_up(attribute) else "same"
            counts = self.trip is not None and self.trip.count == attribute.name
            completed.append(replace(attribute, merged=merged, counts=counts))
        object.__setattr__(self, "attributes", tuple(completed))

    def _problems(self) -> Iterator[Problem]:
        """Yield all problems, each with its place in a policy."""
        if all(a.role is Role.DROP for a in self.attributes):
            yield Problem("a schema needs a column that is not dropped.", where="attributes")
        if not _UNIT.fullmatch(self.protects) or len(self.protects) > _MAX_UNIT:
            what = f"what one record is needs a name of one to three words, up to {_MAX_UNIT} characters"
            yield Problem(what, where="protects", remedy='Write, for example, protects = "package".')
        named = {attribute.name: attribute for attribute in self.attributes}
        if twice := sorted(name for name, times in Counter(a.name for a in self.attributes).items() if times > 1):
            yield Problem(f"columns are declared twice: {', '.join(twice)}. Declare each once.", where="attributes")
        released = {a.name for a in self.attributes if a.role not in _HIDDEN}
        made = {a.name + suffix for a in self.quasi_identifiers for suffix in GENERALISED_SUFFIXES}
        made |= {a.name + DIAMETER_SUFFIX for a in self.quasi_identifiers if isinstance(a.domain, Graph)}
        if released & made:
            what = f"column names {', '.join(sorted(released & made))} collide with names that a release makes "
            yield Problem(what + "from a quasi-identifier. Rename them.", where="attributes")
        together = self.together if self.trip is None else None  # trips are never merged
        for where, column in (("together", together), ("contribution.person", self.person)):
            if column is not None and column not in named:
                what = f"{column!r} is not a declared attribute"
                yield Problem(what, where=where, remedy=suggestion(column, named))
        record = named.get(together) if together is not None else None
        if record is not None and record.role is Role.DROP:
            what = f"rows cannot be put together by {record.name!r}, which is dropped. Give it the role "
            yield Problem(what + '"identifier": it then stays in the key.', where="together")
        elif record is not None and _adds_up(record):
            what = f"rows cannot be put together by {record.name!r}, a numeric quasi-identifier, which is added up. "
            yield Problem(what + "Name the column that says which rows travel together.", where="together")
        person = named.get(self.person) if self.person is not None else None
        if person is not None and person.role is not Role.IDENTIFIER:
            # If the column of persons were released, everyone could link the records of a person.
            why = "which is dropped, so nobody could count them"
            if person.role is not Role.DROP:
                why = (
                    f"which has the role {str(person.role)!r} and would be released. A pseudonym that stays the same "
                    "links all records of a person, and most persons have a unique combination of classes"
                )
            what = f'persons cannot be identified by {person.name!r}, {why}. Give it the role "identifier".'
            yield Problem(what, where="contribution.person")

    def _trip_problems(self) -> Iterator[Problem]:
        named, trip = {attribute.name: attribute for attribute in self.attributes}, self.trip
        for name, attribute in named.items():
            if attribute.kind == Windows.kind and attribute.role is not Role.DROP and (not trip or trip.time != name):
                what = f'kind = "time" is for the time of a trip, and [trip] time does not name {name!r}. '
                yield Problem(what + "Name it there, or choose another kind.", where=f"attributes.{name}")
            if attribute.counts and (trip is None or name != trip.count):
                what = f"counts is for [trip] count, which does not name {name!r}."
                yield Problem(what, where=f"attributes.{name}")
        if trip is None:
            if self.contribution is not None:
                what = "max and per limit the counted trips of a rider, but there is no [trip]. Add it, or keep only "
                yield Problem(what + "person.", where="contribution")
            return
        if strange := [name for name in trip.columns if name not in named]:
            yield from (Problem(f"{name!r} is not a declared attribute. Declare it.", where="trip") for name in strange)
            return
        for part in _PARTS:
            column = getattr(trip, part)
            if column is not None and (what := _part_problem(named[column], part)):
                yield Problem(what, where=f"trip.{part}")
        if trip.destination is not None and named[trip.origin].domain != named[trip.destination].domain:
            what = "origin and destination need the same list of stops."
            yield Problem(what, where="trip.destination")
        for name, attribute in named.items():
            if name not in trip.columns and attribute.role not in _HIDDEN:
                what = f"a table of counts has no column for {name!r} with role {str(attribute.role)!r}. "
                yield Problem(what + 'Use "drop" or "identifier".', where=f"attributes.{name}")
        time = named[trip.time].domain
        if trip.day is not None and isinstance(time, Windows) and time.day is not None:
            what = f"both {trip.day!r} and {trip.time!r} say which day it is. Leave one of them out."
            yield Problem(what, where="trip.day")
        if self.together is not None:
            yield Problem("trips are counted row by row, so together has no meaning. Leave it out.", where="together")
        if trip.level == "zone" and self.city is not None and self.city.zones is None:
            what = 'level = "zone" counts trips between zones, but the stops have none. Add a column zone to the file '
            yield Problem(what + 'of [city] stops, or write level = "stop".', where="trip.level")
        if self.protects not in (TRIP, RIDER):
            what = f'counts of trips protect a "trip" or a "rider". Got {self.protects!r}.'
            yield Problem(what, where="protects")
        if self.protects == RIDER and self.contribution is None:
            what = "protecting a rider needs a limit on the trips of one rider. Write [contribution] with person (the "
            more = 'identifier of a rider), max (for example 3) and per = "day" or "period".'
            yield Problem(what + more, where="contribution")
        if self.protects == TRIP and self.person is not None:
            # Which trips of a rider are kept depends on all of them, so that one more trip can change two counts.
            what = "a limit on the trips of a rider protects riders, but this policy protects one trip. Write protects "
            yield Problem(what + '= "rider", or leave [contribution] out.', where="contribution")
        if self.protects == RIDER and trip.count is not None:
            what = "rows that are counts do not name the rider, so riders cannot be protected. Use rows of single "
            yield Problem(what + 'trips, or write protects = "trip".', where="trip.count")

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __getitem__(self, name: str) -> Attribute:
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise ParameterError(f"no attribute {name!r}. The schema has: {', '.join(a.name for a in self.attributes)}.")

    def with_role(self, role: Role) -> tuple[Attribute, ...]:
        return tuple(a for a in self.attributes if a.role is role)

    @property
    def quasi_identifiers(self) -> tuple[Attribute, ...]:
        """Attributes that are generalised or perturbed."""
        return self.with_role(Role.QUASI_IDENTIFIER)

    @property
    def public(self) -> tuple[Attribute, ...]:
        """Attributes that are released unchanged and that an attacker may know: the strata."""
        return self.with_role(Role.PUBLIC)

    @property
    def sensitive(self) -> tuple[Attribute, ...]:
        """Attributes that are released unchanged and that an attacker wants to learn."""
        return self.with_role(Role.SENSITIVE)

    def clear_columns(self, role: Role, of_what: str = "") -> list[str]:
        """Say which columns of a role are released unchanged, and which codes are shortened first."""
        names: dict[str, list[str]] = {}
        for attribute in self.with_role(role):
            code = attribute.domain.shortened if isinstance(attribute.domain, Tree) else ""
            names.setdefault(f"shortened as in {code}" if code else "unchanged", []).append(attribute.name)
        return [f"{role} columns{of_what}, {how}: {', '.join(columns)}" for how, columns in names.items()]

    @property
    def identifiers(self) -> tuple[Attribute, ...]:
        return self.with_role(Role.IDENTIFIER)

    @property
    def time(self) -> Windows:
        """The time windows of trips; an error if rows are not trips."""
        domain = None if self.trip is None else self[self.trip.time].domain
        if not isinstance(domain, Windows):
            raise ParameterError("counting trips needs a policy with [trip]. Add it.")
        return domain

    @property
    def level(self) -> Level:
        """Whether trips are counted between stops or between zones."""
        return "stop" if self.trip is None else self.trip.level

    @property
    def ends(self) -> tuple[str, ...]:
        """The released columns of where trips begin and, unless they are boardings, where they end."""
        return END_COLUMNS["stop"] if self.trip is None else self.trip.ends

    @property
    def tells_days(self) -> bool:
        return self.trip is not None and (self.trip.day is not None or self.time.day is not None)

    def universe(self, period: str | None = None, *, level: Level | None = None) -> Universe:
        """Return all types of trips, at the level that is released unless another is given; or those of records."""
        if self.trip is None:
            return self._categories()
        time, level = self.time, level or self.level
        stops = self[self.trip.origin].domain
        assert isinstance(stops, Stops)
        return Universe(
            stops=stops.stops if level == "stop" or self.city is None else self.city.zone_names,
            windows=time.labels,
            window_minutes=time.window_minutes,
            days=self._day_labels(period),
            num_dates=self.num_dates(period),
            city=self.city if level == "stop" else None,
            time=time,
            level=level,
            arrives=self.trip.destination is not None,
        )

    def _categories(self) -> Categories:
        """Return all combinations of the labels of quasi-identifiers; refuse columns that no table of counts has."""
        from dunnage.model.categories import Categories

        domains: dict[str, Category | Ordinal] = {}
        for item in self.attributes:
            if isinstance(item.domain, Category | Ordinal | Tree) and item.role is Role.QUASI_IDENTIFIER:
                # A hierarchy plays no part in counts: its leaves are labels.
                leaves = item.domain
                domains[item.name] = Category(values=leaves.labels) if isinstance(leaves, Tree) else leaves
            elif item.role not in _HIDDEN:
                raise ParameterError(
                    f"without [trip], counts are of records by quasi-identifiers of kind category, ordinal or tree. "
                    f"{item.name!r} has role {str(item.role)!r} and kind {item.kind or 'none'!r}. Declare its labels, "
                    'or give it the role "drop"; to count trips, add [trip].'
                )
        if not domains:
            raise ParameterError("counting needs [trip], or a quasi-identifier of kind category, ordinal or tree.")
        return Categories(domains=domains, unit=self.protects)

    def _day_labels(self, period: str | None) -> tuple[str, ...]:
        if self.trip is None or self.trip.day is None:
            return self.time.days(period)
        labelled = self[self.trip.day].domain
        assert isinstance(labelled, Ordinal | Category)
        return labelled.labels

    def num_dates(self, period: str | None = None) -> tuple[int, ...]:
        """Return how many dates a release covers: as stated, or else by the calendar; nothing if neither says so.

        One number for each label of days, or one for all days together. If all days are counted together, fewer dates
        than the calendar has may be stated: for a service that runs on working days, for example.
        """
        labels, stated = self._day_labels(period), self.dates
        calendar = self.time.num_dates(period) if self.trip is None or self.trip.day is None else ()
        if stated is None:
            return calendar
        if not labels:
            if not isinstance(stated, int):
                raise ParameterError("the policy counts all days together. Write dates = their number instead of days.")
            if calendar and stated > calendar[0]:
                raise ParameterError(
                    f"the policy expects {stated:,} dates, but its calendar has only {calendar[0]:,}. Correct one."
                )
            return (stated,)
        if calendar:
            by_calendar = dict(zip(labels, calendar, strict=True))
            if stated not in (sum(calendar), by_calendar):
                numbers = ", ".join(f"{label} {number}" for label, number in by_calendar.items())
                raise ParameterError(f"the calendar says how many dates each label has: {numbers}. Leave it out.")
            return calendar
        if isinstance(stated, int):
            example = ", ".join(f"{label} = {number}" for label, number in zip(labels, (20, 4, 4), strict=False))
            raise ParameterError(
                "days are counted separately, and one number does not say how many dates each label has. "
                f"Write days = {{{example}{', ...' if len(labels) > 3 else ''}}} in [expect] instead."
            )
        if set(stated) != set(labels):
            raise ParameterError(f"days must have a number for each label, and no other: {', '.join(labels)}.")
        return tuple(stated[label] for label in labels)

    def describe(self) -> list[dict[str, object]]:
        """Return the released attributes as plain data, without identifiers and dropped columns."""
        return [a.describe() for a in self.attributes if a.role not in _HIDDEN]


def _adds_up(attribute: Attribute) -> bool:
    numeric = attribute.role is Role.QUASI_IDENTIFIER and isinstance(attribute.domain, Numeric)
    return numeric and not attribute.numeric.clock


_PARTS: dict[str, tuple[tuple[type[Any], ...], str]] = {
    "origin": ((Stops,), 'kind = "stop"'),
    "destination": ((Stops,), 'kind = "stop"'),
    "time": ((Windows,), 'kind = "time"'),
    "count": ((Numeric,), 'kind = "numeric"'),
    "day": ((Ordinal, Category), 'kind = "ordinal" or "category" and a domain of labels'),
}


def _part_problem(attribute: Attribute, part: str) -> str:
    kinds, words = _PARTS[part]
    if attribute.role is not Role.QUASI_IDENTIFIER or not isinstance(attribute.domain, kinds):
        return (
            f'the {part} of a trip needs role = "quasi-identifier" and {words}. {attribute.name!r} has role '
            f"{str(attribute.role)!r} and kind {attribute.kind or 'none'!r}."
        )
    if isinstance(domain := attribute.domain, Numeric):
        if domain.lower < 0:
            return f"counts are 0 or more, but the domain of {attribute.name!r} begins below 0. Begin it at 0."
        if attribute.outside == "clamp" and max(domain.lower.denominator, domain.upper.denominator) > 1:
            return (
                f"counts are whole numbers, and outside = clamp needs a domain of {attribute.name!r} with whole ends. "
                "Write whole numbers."
            )
    return ""
