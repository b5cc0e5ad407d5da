# SPDX-License-Identifier: Apache-2.0
"""Schema: the attributes of a dataset, the role of each, and what one protected record is. Public facts only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from numbers import Integral
from typing import Any

from dunnage.city import City
from dunnage.domains import Category, Domain, Graph, Numeric, Ordinal, Stops, Windows
from dunnage.errors import ParameterError
from dunnage.exact import shown
from dunnage.trips import Trip, Universe

RESERVED_NAMES = ("row", "class_id", "count", "bin", "source_row")
GENERALISED_SUFFIXES = ("_lower", "_upper", "_mean")
DIAMETER_SUFFIX = "_diameter"
MISSING_RULES = ("refuse", "leave-out")
OUTSIDE_RULES = ("refuse", "leave-out", "clamp")
MERGE_RULES = ("sum", "same")
CONTRIBUTION_SPANS = ("day", "period")
TRIP, RIDER = "trip", "rider"
MOST_CONTRIBUTED = 2**31 - 1
COUNT = "count"
_DOMAIN_REMEDIES = {
    "numeric": "domain = [lowest, highest]",
    "category": 'domain = ["a", "b"], all values that may occur',
}
_SPREADSHEET_STARTS = ("=", "+", "-", "@", "'")


class Role(StrEnum):
    """What an attribute is to an attacker, and so what becomes of it."""

    IDENTIFIER = "identifier"
    QUASI_IDENTIFIER = "quasi-identifier"
    SENSITIVE = "sensitive"
    PUBLIC = "public"
    DROP = "drop"


_HIDDEN = (Role.IDENTIFIER, Role.DROP)


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """One column: its role, its kind and public domain, and what to do with values that do not fit.

    Parameters
    ----------
    name, role
        Column name and role.
    kind
        ``numeric``, ``ordinal``, ``category``, ``tree``, ``graph``, ``stop`` or ``time``; None means the domain's, or
        without one text or whatever Arrow holds, released as it is.
    domain
        The public domain, where one is declared.
    missing
        ``refuse`` or ``leave-out``.
    outside
        ``refuse``, ``leave-out`` or (numeric only) ``clamp``.
    merged
        What becomes of it where rows are merged: their ``sum``, or what is the ``same`` in all; None if it is not
        released or nothing is merged. The schema sets it.
    counts
        Whether it holds how many trips a row stands for; it may then be called ``count``. The schema sets it for all
        other names.
    """

    name: str
    role: Role
    kind: str | None = None
    domain: Domain | None = None
    missing: str = "refuse"
    outside: str = "refuse"
    merged: str | None = None
    counts: bool = False

    def __post_init__(self) -> None:
        if self.role not in tuple(Role):
            raise ParameterError(f"role must be one of {', '.join(Role)}. Got {self.role!r} for {self.name!r}.")
        object.__setattr__(self, "role", Role(self.role))
        if self.role is not Role.DROP:
            self._check_name()
        self._check_domain()
        self._check_rules()

    def _check_name(self) -> None:
        if self.name in RESERVED_NAMES and not (self.counts and self.name == COUNT):
            raise ParameterError(
                f"the column name {self.name!r} is reserved in releases ({', '.join(RESERVED_NAMES)}). "
                "Rename the column in the data and the policy."
            )
        start = self.name.lstrip()
        if not start or start.startswith(_SPREADSHEET_STARTS) or not self.name.isprintable():
            raise ParameterError(
                f"the column name {self.name!r} is blank, unprintable or would run in a spreadsheet. Rename the column."
            )

    def _check_domain(self) -> None:
        if self.role is Role.QUASI_IDENTIFIER and self.domain is None:
            remedy = _DOMAIN_REMEDIES.get(self.kind or "", 'kind = "numeric" and domain = [lowest, highest], say')
            needs = f"a public domain, as it is {self.kind}" if self.kind else "a kind and a public domain"
            raise ParameterError(f"quasi-identifier {self.name!r} needs {needs}. Got none. Write {remedy}.")
        if self.domain is not None and self.kind is None:
            object.__setattr__(self, "kind", self.domain.kind)
        if self.domain is not None and self.domain.kind != self.kind:
            raise ParameterError(
                f"attribute {self.name!r} has kind {self.kind!r} but a domain of kind {self.domain.kind!r}. "
                "Make them equal."
            )

    def _check_rules(self) -> None:
        for name, rule, rules in (
            ("missing", self.missing, MISSING_RULES),
            ("outside", self.outside, OUTSIDE_RULES),
        ):
            if rule not in rules:
                raise ParameterError(f"{name} must be one of {', '.join(rules)}. Got {rule!r} for {self.name!r}.")
        if self.merged not in (None, *MERGE_RULES):
            raise ParameterError(
                f"merged must be one of {', '.join(MERGE_RULES)}. Got {self.merged!r} for {self.name!r}."
            )
        if self.outside == "clamp" and not isinstance(self.domain, Numeric):
            raise ParameterError(f"outside = clamp needs a numeric domain. {self.name!r} has none. Use leave-out.")

    @property
    def numeric(self) -> Numeric:
        """The numeric domain; an error for every other kind."""
        if not isinstance(self.domain, Numeric):
            raise ParameterError(f"attribute {self.name!r} is not numeric with a domain. Give it kind and domain.")
        return self.domain

    @property
    def exception(self) -> str:
        """What a receiver must know because values were moved or rows left out; empty if nothing."""
        if self.role in _HIDDEN:
            return ""
        rules = []
        if self.merged and self.role is Role.QUASI_IDENTIFIER:
            how = f"and their {self.name} added up" if self.merged == "sum" else f"all of them of the same {self.name}"
            rules.append(f"rows that travel together were merged into one record, {how}")
        if self.outside == "clamp":
            how = " before counting" if self.counts else ", and stand there"
            rules.append(f"values of {self.name} outside its domain were moved to the nearest end{how}")
        if self.outside == "leave-out":
            rules.append(f"records whose {self.name} lay outside its domain were left out")
        if self.missing == "leave-out":
            rules.append(f"records without {self.name} were left out")
        return "; ".join(rules)

    def describe(self) -> dict[str, Any]:
        """Give name, role, domain and what departs from the rule as plain data."""
        domain = {"domain": self.domain.describe()} if self.domain is not None else {}
        departs = {key: value for key in ("missing", "outside") if (value := getattr(self, key)) != "refuse"}
        kind = {"kind": self.kind} if self.kind else {}
        merged = {"merged": self.merged} if self.merged else {}
        return {"name": self.name, "role": str(self.role), **kind, **domain, **departs, **merged}


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """How many trips of one rider are counted at most.

    Parameters
    ----------
    person
        Identifier that tells riders apart.
    max
        Most trips that are counted, chosen at random from all.
    per
        Whether that is for each service ``day``, or for the ``period`` (the whole dataset, if it has none).
    """

    person: str
    max: int
    per: str

    def __post_init__(self) -> None:
        whole = isinstance(self.max, Integral) and not isinstance(self.max, bool)
        if not whole or not 1 <= self.max <= MOST_CONTRIBUTED:
            raise ParameterError(
                f"max must be a whole number of trips from 1 to {MOST_CONTRIBUTED}. Got {shown(self.max)}. "
                "Write 3, say."
            )
        object.__setattr__(self, "max", int(self.max))
        if self.per not in CONTRIBUTION_SPANS:
            raise ParameterError(f"per must be one of {', '.join(CONTRIBUTION_SPANS)}. Got {shown(self.per)}.")


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The attributes of a dataset in order, and what one protected record is.

    Parameters
    ----------
    attributes
        All declared columns.
    protects
        What one record stands for: ``package``, ``trip`` ...
    together
        Column whose equal values mark the rows of one record, if rows are to be merged. Numeric quasi-identifiers
        are added up; all else that is released must be the same in all rows of a record.
    person
        Identifier that tells persons apart, if a person may have several records: k then counts persons. With a
        contribution it is that of the contribution.
    trip
        Which columns describe a trip, if rows are trips or counts of trips.
    city
        Zones of stops and modes of pairs of stops, where trips are counted by them.
    contribution
        How many trips of a rider are counted at most, if riders are protected.
    """

    attributes: tuple[Attribute, ...]
    protects: str
    together: str | None = None
    person: str | None = None
    trip: Trip | None = None
    city: City | None = field(default=None, repr=False)
    contribution: Contribution | None = None

    def __post_init__(self) -> None:
        if all(a.role is Role.DROP for a in self.attributes) or not self.protects.strip():
            raise ParameterError(
                "a schema needs one column or more that is not dropped, and must say what one record stands for."
            )
        twice = sorted(name for name, times in Counter(a.name for a in self.attributes).items() if times > 1)
        if twice:
            raise ParameterError(f"columns declared twice: {', '.join(twice)}. Declare each once.")
        released = {a.name for a in self.attributes if a.role in (Role.PUBLIC, Role.SENSITIVE, Role.QUASI_IDENTIFIER)}
        made = {a.name + suffix for a in self.quasi_identifiers for suffix in GENERALISED_SUFFIXES}
        made |= {a.name + DIAMETER_SUFFIX for a in self.quasi_identifiers if isinstance(a.domain, Graph)}
        if released & made:
            raise ParameterError(
                f"column names {', '.join(sorted(released & made))} collide with names that a release makes "
                "from a quasi-identifier. Rename them."
            )
        if self.together is not None:
            self._check_together(self[self.together])
        if self.contribution is not None:
            if self.person not in (None, self.contribution.person):
                raise ParameterError("person and contribution name two columns. Name one.")
            object.__setattr__(self, "person", self.contribution.person)
        if self.person is not None:
            check_person(self[self.person])
        self._check_trip()
        object.__setattr__(self, "attributes", tuple(self._completed(a) for a in self.attributes))

    def _check_trip(self) -> None:
        problems = trip_problems(
            self.attributes,
            protects=self.protects,
            trip=self.trip,
            contribution=self.contribution,
            person=self.person,
            together=self.together,
        )
        for _, problem in problems:
            raise ParameterError(problem)

    def _completed(self, attribute: Attribute) -> Attribute:
        counts = self.trip is not None and self.trip.count == attribute.name
        return replace(attribute, merged=self._merged(attribute), counts=counts)

    def _check_together(self, attribute: Attribute) -> None:
        if attribute.role is Role.DROP:
            raise ParameterError(
                f"rows cannot be put together by {attribute.name!r}, which is dropped. Give it the role "
                '"identifier": it then stays in the key.'
            )
        if _adds_up(attribute):
            raise ParameterError(
                f"rows cannot be put together by {attribute.name!r}, a numeric quasi-identifier, which is added up. "
                "Name the column that says which rows travel together."
            )

    def _merged(self, attribute: Attribute) -> str | None:
        if self.together is None or attribute.role in _HIDDEN:
            return None
        return "sum" if _adds_up(attribute) else "same"

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __getitem__(self, name: str) -> Attribute:
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise ParameterError(f"no attribute {name!r}. The schema has: {', '.join(a.name for a in self.attributes)}.")

    def with_role(self, role: Role) -> tuple[Attribute, ...]:
        """Return the attributes of one role, in order."""
        return tuple(a for a in self.attributes if a.role is role)

    @property
    def quasi_identifiers(self) -> tuple[Attribute, ...]:
        """Attributes to be generalised or perturbed."""
        return self.with_role(Role.QUASI_IDENTIFIER)

    @property
    def public(self) -> tuple[Attribute, ...]:
        """Attributes released as they are that an attacker may know: the strata."""
        return self.with_role(Role.PUBLIC)

    @property
    def sensitive(self) -> tuple[Attribute, ...]:
        """Attributes released as they are that an attacker wants to learn."""
        return self.with_role(Role.SENSITIVE)

    @property
    def identifiers(self) -> tuple[Attribute, ...]:
        """Attributes that stay in the key."""
        return self.with_role(Role.IDENTIFIER)

    @property
    def time(self) -> Windows:
        """The windows of time of trips; an error where rows are no trips."""
        domain = None if self.trip is None else self[self.trip.time].domain
        if not isinstance(domain, Windows):
            raise ParameterError("trips are counted under a policy with [trip]. Got none. Add it.")
        return domain

    @property
    def tells_days(self) -> bool:
        """Whether days of trips are told apart."""
        return self.trip is not None and (self.trip.day is not None or self.time.day is not None)

    def universe(self, period: str | None = None) -> Universe:
        """Return all types of trips there can be.

        Parameters
        ----------
        period
            The day (``YYYY-MM-DD``) or month (``YYYY-MM``) that is looked at, where there is one.

        Raises
        ------
        ParameterError
            If rows are no trips, or dates are told apart and nobody says which there are.
        """
        time = self.time
        assert self.trip is not None
        stops, days, num_dates = self[self.trip.origin].domain, time.days(period), time.num_dates(period)
        assert isinstance(stops, Stops)
        if self.trip.day is not None:
            labelled = self[self.trip.day].domain
            assert isinstance(labelled, Ordinal | Category)
            days, num_dates = labelled.labels, ()  # how many dates a label stands for is not known
        return Universe(
            stops=stops.stops,
            windows=time.labels,
            window_minutes=time.window_minutes,
            days=days,
            num_dates=num_dates,
            city=self.city,
            time=time,
        )

    def describe(self) -> list[dict[str, Any]]:
        """Give the released attributes as plain data; identifiers and dropped columns are not named."""
        return [a.describe() for a in self.attributes if a.role not in _HIDDEN]


def _adds_up(attribute: Attribute) -> bool:
    return attribute.role is Role.QUASI_IDENTIFIER and isinstance(attribute.domain, Numeric)


def check_person(attribute: Attribute) -> None:
    """Refuse a person column that would be released: it would link the records of a person for everyone."""
    if attribute.role is Role.IDENTIFIER:
        return
    if attribute.role is Role.DROP:
        why = "which is dropped, so nobody could count them"
    else:
        why = (
            f"which has the role {str(attribute.role)!r} and would be released. A pseudonym kept across rows links all "
            "records of a person, and most persons are the only ones with their combination of classes"
        )
    raise ParameterError(f'persons cannot be told apart by {attribute.name!r}, {why}. Give it the role "identifier".')


def trip_problems(
    attributes: Sequence[Attribute],
    *,
    protects: str,
    trip: Trip | None = None,
    contribution: Contribution | None = None,
    person: str | None = None,
    together: str | None = None,
) -> Iterator[tuple[str, str]]:
    """Find what is wrong with what a schema is to say about trips."""
    named = {attribute.name: attribute for attribute in attributes}
    if contribution is not None and contribution.person not in named:
        yield "contribution.person", f"{contribution.person!r} is not a declared attribute. Declare it."
    yield from _special_problems(named, trip)
    if trip is None:
        if contribution is not None:
            yield "contribution", _NO_TRIP
        return
    strange = [name for name in trip.columns if name not in named]
    yield from (("trip", f"{name!r} is not a declared attribute. Declare it.") for name in strange)
    if strange:
        return
    for name in ("origin", "destination", "time", "count", "day"):
        column = getattr(trip, name)
        problem = _part_problem(named[column], name) if column is not None else ""
        if problem:
            yield f"trip.{name}", problem
    if named[trip.origin].domain != named[trip.destination].domain:
        yield "trip.destination", "origin and destination need the same stops. Got two lists. Use one."
    yield from _other_problems(named, trip)
    if together is not None:
        yield "together", "trips are counted row by row. Got together. Leave it out."
    yield from _rider_problems(protects, trip, contribution, person)


_NO_TRIP = "max and per bound how many trips of a rider are counted. Got no [trip]. Add it, or keep person alone."


def _special_problems(named: Mapping[str, Attribute], trip: Trip | None) -> Iterator[tuple[str, str]]:
    """Find what only columns of a trip can be."""
    for name, attribute in named.items():
        is_time = trip is not None and trip.time == name
        if attribute.kind == Windows.kind and attribute.role is not Role.DROP and not is_time:
            what = f'kind = "time" is for the time of a trip. Got {name!r}, which [trip] time does not name. '
            yield f"attributes.{name}", what + "Name it there, or choose another kind."
        if attribute.counts and (trip is None or name != trip.count):
            yield f"attributes.{name}", f"counts is for [trip] count. Got {name!r}, which it does not name."


_PARTS: dict[str, tuple[tuple[type[Any], ...], str]] = {
    "origin": ((Stops,), 'kind = "stop"'),
    "destination": ((Stops,), 'kind = "stop"'),
    "time": ((Windows,), 'kind = "time"'),
    "count": ((Numeric,), 'kind = "numeric"'),
    "day": ((Ordinal, Category), 'kind = "ordinal" or "category" and a domain of labels'),
}


def _ends(domain: Domain | None) -> tuple[Fraction, ...]:
    return (domain.lower, domain.upper) if isinstance(domain, Numeric) else ()


def _part_problem(attribute: Attribute, part: str) -> str:
    kinds, words = _PARTS[part]
    if attribute.role is not Role.QUASI_IDENTIFIER or not isinstance(attribute.domain, kinds):
        return (
            f'the {part} of a trip needs role = "quasi-identifier" and {words}. Got {attribute.name!r} with role '
            f"{str(attribute.role)!r} and kind {attribute.kind or 'none'!r}. Change them."
        )
    if isinstance(attribute.domain, Numeric) and attribute.domain.lower < 0:
        return f"counts are 0 or more. Got a domain of {attribute.name!r} from below 0. Begin it at 0."
    if attribute.outside == "clamp" and any(end.denominator > 1 for end in _ends(attribute.domain)):
        return (
            f"counts are whole numbers. Got a domain of {attribute.name!r} that begins or ends between two, where "
            "outside = clamp would put some. Write whole numbers."
        )
    return ""


def _other_problems(named: Mapping[str, Attribute], trip: Trip) -> Iterator[tuple[str, str]]:
    """Find what a table of counts has no place for."""
    for name, attribute in named.items():
        if name not in trip.columns and attribute.role not in _HIDDEN:
            what = f"a table of counts has no rows that could carry {name!r} with role {str(attribute.role)!r}. "
            yield f"attributes.{name}", what + 'Use "drop" or "identifier".'
    time = named[trip.time].domain
    if trip.day is not None and isinstance(time, Windows) and time.day is not None:
        yield "trip.day", f"days are told apart by {trip.day!r} and by {trip.time!r}. Leave one of them out."


_NO_BOUND = (
    "a rider is protected only if the trips of one are bounded. Got no bound. Write [contribution] with person (the "
    'identifier that tells riders apart), max = 3, say, and per = "day" or "period".'
)
# Which trips of a rider are kept depends on all of them, so that one trip more can change two counts.
_NO_RIDER = (
    'bounding the trips of a rider protects riders, and here one trip is protected. Write protects = "rider", or leave '
    "[contribution] out."
)
_NO_CARD = (
    "rows that are counts do not say whose trips they are, so that riders cannot be protected. Count single trips, or "
    'write protects = "trip".'
)


def _rider_problems(
    protects: str, trip: Trip, contribution: Contribution | None, person: str | None
) -> Iterator[tuple[str, str]]:
    """Find what stands in the way of protecting a trip or a rider."""
    if protects not in (TRIP, RIDER):
        yield "protects", f'counts of trips protect a "trip" or a "rider". Got {protects!r}. Choose one.'
    if protects == RIDER and contribution is None:
        yield "contribution", _NO_BOUND
    if protects == TRIP and person is not None:
        yield "contribution", _NO_RIDER
    if protects == RIDER and trip.count is not None:
        yield "trip.count", _NO_CARD
