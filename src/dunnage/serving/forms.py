# SPDX-License-Identifier: Apache-2.0
"""The columns page: a policy as a form, and a form as a policy. What a form does not ask stays as the policy has it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from dunnage.errors import DunnageError, ParameterError
from dunnage.mechanisms import MECHANISMS
from dunnage.mechanisms.base import Mechanism
from dunnage.model.periods import LENGTHS
from dunnage.model.policy import Document, Policy, Written
from dunnage.model.schema import Role
from dunnage.publishing import mechanism_of

ROLES = {  # in the words of the page
    Role.IDENTIFIER.value: "Name: it names a record, and stays with you",
    Role.QUASI_IDENTIFIER.value: "Share less exactly: an outsider may know it",
    Role.PUBLIC.value: "Share as is: everyone may see it",
    Role.SENSITIVE.value: "Share as is: no outsider knows it",
    Role.DROP.value: "Leave out",
}
PRIVACY = ("k", "epsilon")  # what a slider can choose
_WHOLE = re.compile(r"\d{1,15}")


def privacy_parameter(name: str) -> str:
    """Return the parameter of a mechanism that says how private a release is."""
    fields = MECHANISMS[name].model_fields if name in MECHANISMS else {}
    return next((key for key in PRIVACY if key in fields and (fields[key].is_required() or key == "k")), PRIVACY[-1])


def choices(*, trips: bool) -> list[tuple[str, str, str]]:
    """Return mechanisms that need no more than one number: name, that parameter, and what it does."""
    made = []
    for name, kind in MECHANISMS.items():
        required = {key for key, field in kind.model_fields.items() if field.is_required()}
        if kind.counts_trips == trips and len(required - set(PRIVACY)) == 0 and len(required) <= 1:
            made.append((name, privacy_parameter(name), _first_sentence(kind)))
    return made


def _first_sentence(kind: type[Mechanism]) -> str:
    return (kind.__doc__ or kind.name).strip().splitlines()[0].rstrip(".")


def number(text: str, where: str) -> int | float:
    """Read a number as a person writes it, with a point or a comma."""
    text = text.strip().replace(",", ".")
    if _WHOLE.fullmatch(text.removeprefix("-")):
        return int(text)
    try:
        value = float(text)
    except ValueError:
        raise ParameterError(f"{where} must be a number. Got {text[:40]!r}.") from None
    if value != value or abs(value) > 1e15:
        raise ParameterError(f"{where} must be a number below 1e15.")
    return value


def document_of(form: Mapping[str, str], base: Document, columns: list[Document], stops: str) -> Document:
    """Write a filled-in form into a policy or draft; blanks that it leaves are what reading the policy complains of."""
    document: Any = copy.deepcopy(dict(base))
    trips = "trip" in document
    document["dataset"] = form.get("dataset", "").strip()[:80] or document.get("dataset", "")
    document["protects"] = form.get("protects", "").strip()[:40] or document.get("protects", "")
    if trips:
        _fill_trips(document, form, columns, stops)
    else:
        document["attributes"] = {
            column["name"]: _column_table(form, str(at), document.get("attributes", {}).get(column["name"], {}))
            for at, column in enumerate(columns)
        }
        document["small"] = "suppress" if form.get("small") else "refuse"
        person = form.get("person", "")
        document["contribution"] = {"person": person} if person else None
    before = document.get("mechanism", {})
    name = form.get("mechanism") or str(before.get("name", ""))
    kept = before if name == before.get("name") else {}
    parameter, amount = privacy_parameter(name), form.get("amount", "")
    document["mechanism"] = {**kept, "name": name, parameter: number(amount, parameter) if amount.strip() else ""}
    length = form.get("period_length", "")
    if length in LENGTHS:
        period = {"length": length, "column": form.get("period_column", ""), "format": form.get("period_format", "")}
        document["period"] = {key: text for key, text in period.items() if text}
    else:
        document.pop("period", None)
    if form.get("budget", "").strip():
        stated = {"epsilon": number(form["budget"], "the budget"), "neighbours": form.get("neighbours", "add-remove")}
        document["budget"] = {**document.get("budget", {}), **stated}
    return {key: value for key, value in document.items() if value is not None}


def _column_table(form: Mapping[str, str], at: str, before: Document) -> Document:
    role, kind = form.get(f"role{at}", ""), form.get(f"kind{at}", "")
    name = form.get(f"name{at}", "a column")
    table: dict[str, object] = {"role": role}
    if role in (Role.IDENTIFIER.value, Role.DROP.value):
        return table
    kept = {key: before[key] for key in ("hierarchy", "parents", "edges", "doubling") if key in before}
    low, high = form.get(f"low{at}", ""), form.get(f"high{at}", "")
    if kind == "prefix":
        lengths = [int(text) for text in re.findall(r"\d+", form.get(f"keep{at}", ""))]
        table |= {"kind": kind, "length": number(form.get(f"length{at}", ""), f"{name}: length"), "prefix": lengths}
    elif kind == "numeric" and (low or high or role == Role.QUASI_IDENTIFIER.value):
        bounds = [number(text, f"{name}: bounds") for text in (low, high) if text.strip()]
        table |= {"kind": kind, "domain": bounds}
        if form.get(f"step{at}", "").strip():
            table["resolution"] = number(form[f"step{at}"], f"{name}: step")
        table |= {"unit": unit} if (unit := form.get(f"unit{at}", "").strip()[:20]) else {}
    elif kind == "clock" and low and high:
        table |= {"kind": kind, "domain": [low.strip(), high.strip()]}
    elif kind and kind != "text" and role == Role.QUASI_IDENTIFIER.value:
        values = [text.strip() for text in form.get(f"values{at}", "").split(",") if text.strip()]
        table |= {"kind": kind} | ({"domain": values} if values else {}) | kept
    if (rule := form.get(f"outside{at}", "")) == "leave-out":
        table |= {"missing": rule, "outside": rule}
    elif rule == "clamp":
        table["outside"] = rule
    return table


def _fill_trips(document: Any, form: Mapping[str, str], columns: list[Document], stops: str) -> None:
    ends = {key: form.get(key, "") for key in ("origin", "destination", "time")}
    document["trip"] = {**document["trip"], **ends}
    if not ends["destination"]:  # boardings
        del document["trip"]["destination"]
    if form.get("level") == "zone":
        document["trip"]["level"] = "zone"
    else:
        document["trip"].pop("level", None)
    person, attributes = form.get("person", ""), dict[str, Document]()
    for column in columns:
        name, role = column["name"], Role.QUASI_IDENTIFIER.value
        if name == ends["time"]:
            window = form.get("window_minutes", "")
            table = {
                "role": role,
                "kind": "time",
                "domain": [text for key in ("day_from", "day_to") if (text := form.get(key, "").strip())],
                "window_minutes": number(window, "the window") if window else "",
                "zone": form.get("zone", "").strip(),
                "day": form.get("day", ""),
                "format": form.get("time_format", "").strip(),
                "outside": "leave-out",
            }
            attributes[name] = {key: value for key, value in table.items() if value not in ("", None)}
        elif name in (ends["origin"], ends["destination"]):
            attributes[name] = {
                "role": role,
                "kind": "stop",
                **({"outside": "leave-out"} if form.get("strays") else {}),
            }
        else:
            attributes[name] = {"role": Role.IDENTIFIER.value if name == person else Role.DROP.value}
    document["attributes"] = attributes
    document["city"] = {**document.get("city", {}), **({"stops": stops} if stops else {})}
    expect = {key: number(form[key], key) for key in ("dates", "trips") if form.get(key, "").strip()}
    document["expect"] = {
        key: value for key, value in expect.items() if key != "dates" or not form.get("period_length")
    }
    if person:
        most = form.get("max", "")
        document["contribution"] = {"person": person, "max": number(most, "max") if most else "", "per": "period"}
        document["protects"] = "rider"
    else:
        document.pop("contribution", None)
        document["protects"] = "trip"


def with_amount(text: str, amount: str) -> str:
    """Write a policy with another k or epsilon."""
    document = copy.deepcopy(dict(Written.from_text(text).document))
    name = privacy_parameter(str(document["mechanism"].get("name", "")))
    document["mechanism"] = {**document["mechanism"], name: number(amount, name)}
    return tomli_w.dumps(document)


def checked(document: Document | str, path: Path) -> str:
    """Return the text of a policy that can be used; every problem of one that cannot is raised at once."""
    text = document if isinstance(document, str) else tomli_w.dumps(document)
    mechanism_of(Policy.from_text(text, path=path))
    return text


def problems_of(error: DunnageError) -> Iterator[str]:
    """Yield the problems of a policy, without the path of its file, which is the studio's and means nothing."""
    problems = getattr(error, "problems", ())
    yield from map(str, problems) if problems else [str(error)]
