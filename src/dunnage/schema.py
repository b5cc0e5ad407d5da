# SPDX-License-Identifier: Apache-2.0
"""Schema: the attributes of a dataset, the role of each, and what one protected record is. Public facts only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from dunnage.domains import Domain, Graph, Numeric
from dunnage.errors import ParameterError

RESERVED_NAMES = ("row", "class_id", "count", "bin", "source_row")
GENERALISED_SUFFIXES = ("_lower", "_upper", "_mean")
DIAMETER_SUFFIX = "_diameter"
MISSING_RULES = ("refuse", "leave-out")
OUTSIDE_RULES = ("refuse", "leave-out", "clamp")
MERGE_RULES = ("sum", "same")
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
        ``numeric``, ``ordinal``, ``category``, ``tree`` or ``graph``; None means the domain's, or without one
        text or whatever Arrow holds, released as it is.
    domain
        The public domain, where one is declared.
    missing
        ``refuse`` or ``leave-out``.
    outside
        ``refuse``, ``leave-out`` or (numeric only) ``clamp``.
    merged
        What becomes of it where rows are merged: their ``sum``, or what is the ``same`` in all; None if it is not
        released or nothing is merged. The schema sets it.
    """

    name: str
    role: Role
    kind: str | None = None
    domain: Domain | None = None
    missing: str = "refuse"
    outside: str = "refuse"
    merged: str | None = None

    def __post_init__(self) -> None:
        if self.role not in tuple(Role):
            raise ParameterError(f"role must be one of {', '.join(Role)}. Got {self.role!r} for {self.name!r}.")
        object.__setattr__(self, "role", Role(self.role))
        if self.role is not Role.DROP:
            self._check_name()
        self._check_domain()
        self._check_rules()

    def _check_name(self) -> None:
        if self.name in RESERVED_NAMES:
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
            rules.append(f"values of {self.name} outside its domain were moved to the nearest end, and stand there")
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
        Identifier that tells persons apart, if a person may have several records: k then counts persons.
    """

    attributes: tuple[Attribute, ...]
    protects: str
    together: str | None = None
    person: str | None = None

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
        if self.person is not None:
            _check_person(self[self.person])
        object.__setattr__(self, "attributes", tuple(replace(a, merged=self._merged(a)) for a in self.attributes))

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

    def describe(self) -> list[dict[str, Any]]:
        """Give the released attributes as plain data; identifiers and dropped columns are not named."""
        return [a.describe() for a in self.attributes if a.role not in _HIDDEN]


def _adds_up(attribute: Attribute) -> bool:
    return attribute.role is Role.QUASI_IDENTIFIER and isinstance(attribute.domain, Numeric)


def _check_person(attribute: Attribute) -> None:
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
