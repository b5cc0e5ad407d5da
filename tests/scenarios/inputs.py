# SPDX-License-Identifier: Apache-2.0
"""Small data and policies that scenarios begin with."""

from __future__ import annotations

from typing import Any

PERSON = """[contribution]
person = "card"
"""
RIDER = (
    PERSON
    + """max = 2
per = "period"
"""
)
CONTENTS = ("phones", "books", "shoes")


def parcels(num: int = 40) -> str:
    rows = [
        f"P{i:03d},{('Bremen', 'Antwerp')[i % 2]},{CONTENTS[i * 7 % 3]},{20 + (i * 37 % 67) + (i % 5) / 10}"
        for i in range(num)
    ]
    return "\n".join(["parcel,destination,content,weight", *rows]) + "\n"


def table(values: dict[str, Any]) -> str:
    return "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {_toml(inner)}' for key, inner in value.items()) + " }"
    return str(value)


def parcel_policy(name: str, *, sensitive: bool = True, head: str = "", tail: str = "", **parameters: Any) -> str:
    return f"""dataset = "parcels"
protects = "package"
{head}
[attributes.parcel]
role = "identifier"

[attributes.destination]
role = "public"

[attributes.content]
role = "{"sensitive" if sensitive else "drop"}"

[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 100]
resolution = 0.1
unit = "kg"
doubling = 5

[mechanism]
name = "{name}"
{table(parameters)}{tail}"""


STATIONS = [f"S{number}" for number in range(8)]
EDGES = "from,to,length\n" + "".join(f"S{i},S{i + 1},{1 + i % 3}\n" for i in range(7)) + "S7,S0,2\n"


def rides(num: int = 40) -> str:
    kinds = ("Adult", "Senior", "Child", "Adult", "Adult")
    purpose = ("work", "school", "leisure", "work")
    rows = [
        f"C{i * 5 % 17:02d},{kinds[i % 5]},S{i * 3 % 8},{('small', 'medium', 'large')[i * i % 3]},{i * 53 % 101},"
        f"{purpose[i * 7 % 4]}"
        for i in range(num)
    ]
    return "\n".join(["card,type,board,bag,start,purpose", *rows]) + "\n"


def rides_policy(*, person: bool = False, **parameters: Any) -> str:
    return f"""dataset = "rides"
protects = "ride"
{PERSON if person else ""}
[attributes.card]
role = "identifier"

[attributes.type]
role = "quasi-identifier"
kind = "tree"
[attributes.type.parents]
Senior = "Not Adult"
Child = "Not Adult"
"Not Adult" = "Person"
Adult = "Person"

[attributes.board]
role = "quasi-identifier"
kind = "graph"
edges = "edges.csv"

[attributes.bag]
role = "quasi-identifier"
kind = "ordinal"
domain = ["small", "medium", "large"]

[attributes.start]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 100]
unit = "min"

[attributes.purpose]
role = "sensitive"

[mechanism]
name = "utility-clusters"
{table(parameters)}"""


STOPS = "stop,zone\n" + "".join(f"S{i},{'east' if i < 2 else 'west'}\n" for i in range(5))
MODES = "origin,destination,mode\n" + "".join(
    f"S{a},S{b},{'walk' if a == b else 'bus' if (a + b) % 2 else 'shuttle'}\n" for a in range(5) for b in range(5)
)


def trips(num: int = 60) -> str:
    rows = [
        f"K{i * 7 % 23:02d},S{i * 3 % 5},S{i * i % 5},2026-10-{14 + i % 2}T{8 + i % 2:02d}:{i * 11 % 60:02d}:13"
        for i in range(num)
    ]
    return "\n".join(["card,from,to,at", *rows]) + "\n"


def trips_policy(name: str, *, rider: bool = False, day: str = "", head: str = "", **parameters: Any) -> str:
    return f"""dataset = "trips"
protects = "{"rider" if rider else "trip"}"
{head}
[trip]
origin = "from"
destination = "to"
time = "at"
{RIDER if rider else ""}
[attributes.card]
role = "identifier"

[attributes.from]
role = "quasi-identifier"
kind = "stop"

[attributes.to]
role = "quasi-identifier"
kind = "stop"

[attributes.at]
role = "quasi-identifier"
kind = "time"
window_minutes = 60
domain = ["08:00", "10:00"]
{day}

[city]
stops = "stops.csv"
modes = "modes.csv"

[mechanism]
name = "{name}"
{table(parameters)}"""
