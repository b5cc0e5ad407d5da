# SPDX-License-Identifier: Apache-2.0
"""Policies to be filled in, written from the names and types of columns alone.

What a name usually means is said in comments, and never decided: roles, bounds, k and epsilon are the owner's to write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from dunnage.errors import ParameterError
from dunnage.exact import shown
from dunnage.model.documents import suggestion
from dunnage.model.schema import RESERVED_NAMES
from dunnage.tables.reader import ReadOptions

STORIES = ("rows", "trips", "devices")
"""What rows of a file stand for: records of their own, trips to be counted, or readings of devices."""

_ROLES = "identifier | quasi-identifier | sensitive | public | drop"
_WORDS: Mapping[str, frozenset[str]] = {
    meaning: frozenset(words.split())
    for meaning, words in {
        "free": "remark remarks note notes comment comments description address street bemerkung adresse text",
        "person": "card rider passenger customer client kunde kunden person sender recipient consignee shipper driver "
        "account email phone",
        "vehicle": "vehicle truck device van lorry bus trailer wagon container sensor tracker logger vin plate "
        "fahrzeug kennzeichen",
        "id": "id ids no nr num number reference ref tracking barcode uuid guid uid key serial name",
        "from": "origin from board boarding start source pickup departure entry von tapin",
        "to": "destination to alight alighting end target dropoff arrival exit nach tapout",
        "amount": "weight kg lb lbs tonnes mass gross net gewicht poids volume m3 height width length depth cm",
        "measured": "speed load temperature temp humidity light shock shocks fuel pressure odometer rpm battery",
        "latitude": "lat latitude",
        "longitude": "lon lng long longitude",
        "place": "destination zip postcode plz town city ort ville depot region country zone area route stop station",
        "time": "date day time timestamp datum hour month due",
        "money": "value price cost fare amount revenue content contents goods hazard hazardous type class",
        "thing": "job parcel package packet shipment consignment order ticket invoice paket sendung auftrag",
    }.items()
}
_COMPOUND_ENDS = ("nr", "nummer", "number", "gewicht", "datum", "name")
_UNITS = {"kg": "kg", "lb": "lb", "lbs": "lb", "t": "t", "m3": "m3", "cm": "cm", "mm": "mm", "kmh": "km/h", "km": "km"}
_LIKELY_UNITS = {"g": "g", "m": "m", "l": "l", "c": "°C", "pct": "%", "v": "V", "h": "h", "min": "min", "s": "s"}
"""What the last word of a name may mean, or not: told in a comment."""
_HINTS = {
    "free": "drop: free text may name anybody",
    "person": "identifier, if it names a person: it stays in the key and is never released",
    "id": "identifier, if it names one record: it stays in the key and is never released",
    "vehicle": "identifier, if it names one vehicle; public if everyone may see it",
    "amount": "quasi-identifier, if an outsider may know it and a planner needs it",
    "measured": "quasi-identifier, if an outsider may know it; else sensitive",
    "place": "public, if it may be seen as it is and many rows share each value; else drop",
    "time": "drop, or public if many rows share each value; [period] publishes one day or month at a time",
    "money": "sensitive, if nobody outside knows it and it may be seen as it is; else drop",
    "thing": "identifier, if it names one record: it stays in the key and is never released",
}
_GENERAL = {
    "numeric": "quasi-identifier, if an outsider may know it and a planner needs it; else sensitive or drop",
    "flag": "public if everyone may know it, sensitive if nobody outside does; else drop",
    "time": _HINTS["time"],
    "date": _HINTS["time"],
    "text": "public if everyone may know it and many rows share each value; else identifier or drop",
}


SEEN: Mapping[str, str] = {
    "comma": "some cells look like numbers with a decimal comma",
    "point": "some cells look like numbers with a decimal point",
    "thousands": "some cells look like numbers with marks between thousands",
    "words": "most cells look like numbers, and some do not",
    "offset": "times state their difference from UTC",
    "nothing": "there are no rows",
}
"""What may be seen of how the cells of a column are written, beyond their kind."""


def draft_policy(
    dataset: str,  # Name for the ledger
    kinds: Mapping[str, str],
    *,
    options: ReadOptions | None = None,  # How the CSV file is written, where it is not the usual way
    story: str | None = None,  # `rows`, `trips` or `devices`; by default what the names of the columns look like
    seen: Mapping[str, str] | None = None,
) -> str:
    if story is not None and story not in STORIES:
        raise ParameterError(f"unknown story. Got {shown(story)}. {suggestion(str(story), STORIES)}")
    write = {"rows": _draft_rows, "trips": _draft_trips, "devices": _draft_devices}[story or likely_story(kinds)]
    return write(dataset, kinds, options or ReadOptions(), seen or {})


def likely_story(kinds: Mapping[str, str]) -> str:
    """Say what rows stand for, by the names of their columns."""
    moment = _first(kinds, lambda name, kind: kind == "time")
    if moment is None:
        return "rows"
    weighed = any(_means(name, "amount") for name in kinds)
    if not weighed and _end(kinds, "from") and _end(kinds, "to"):
        return "trips"
    goods = weighed or any(_means(name, "thing") for name in kinds)
    # Readings are of something that moves or measures, not of goods.
    numbers = [name for name, kind in kinds.items() if kind == "numeric"]
    place, measured = _place(kinds) is not None, any(_means(name, "measured") for name in numbers)
    unnamed = any(not any(_means(name, meaning) for meaning in _WORDS) for name in numbers)
    if any(_means(name, "vehicle") for name in kinds):
        return "devices" if place or measured or (unnamed and not goods) else "rows"
    return "devices" if place and (measured or not goods) else "rows"


# --- rows ---------------------------------------------------------------------------------------------------------


def _draft_rows(dataset: str, kinds: Mapping[str, str], options: ReadOptions, seen: Mapping[str, str]) -> str:
    tables = [_row_table(name, kind, _seen(seen.get(name), options)) for name, kind in kinds.items()]
    head = _head(dataset, "record", 'what one row stands for: "package", "ride", "order" ...', "rows")
    name = "partition" if "numeric" in kinds.values() else "utility-clusters"
    kept = '# small = "suppress"       # rows whose public values fewer than k share are left out, not refused\n'
    return "\n".join([head + kept, *tables, _MECHANISM.format(name=_line(f'name = "{name}"')), _read(options, seen)])


_MECHANISM = """[mechanism]                # dunnage advise fills this in: leave it as it is, or choose yourself
{name}# docs/choosing.md says which there are
k = ""                     # fewest records that must look alike; no default, it is your promise
"""


def _row_table(name: str, kind: str, told: list[str]) -> str:
    hints = (hint for meaning, hint in _HINTS.items() if _means(name, meaning))
    hint = _GENERAL[kind] if kind in ("time", "date") else next(hints, _GENERAL[kind])
    if name in RESERVED_NAMES:
        hint = "drop, or rename the column in data and policy: releases use this name"
    lines = [f"[attributes.{_key(name)}]", f'role = ""                  # {hint}', *told]
    if kind == "numeric":
        lines += _bounds(name)
        lines.append("# resolution = 0.1         # step of the public grid; noisy mechanisms need it")
    elif told:
        lines += [f"# {line.removeprefix('# ')}" for line in _bounds(name)]
    elif kind in ("text", "flag"):
        lines.append('# kind = "category"        # a quasi-identifier needs one: category | ordinal | tree | graph')
        lines.append('# domain = ["a", "b"]      # all values there can be, from public knowledge')
    elif kind == "date":
        lines.append("# [period] reads days written like 2026-11-15; these are not")
    return "\n".join(lines) + "\n"


def _bounds(name: str) -> list[str]:
    unit, last = '# unit = "kg"', (re.findall(r"[^\W_]+", name.casefold()) or [""])[-1]
    if named := [_UNITS[word] for word in _words(name) if word in _UNITS]:
        unit = _line(f'unit = "{named[0]}"') + "# as the name says"
    elif last in _LIKELY_UNITS:
        unit = _line(f'# unit = "{_LIKELY_UNITS[last]}"') + "# if the name means that"
    return [
        'kind = "numeric"',
        "domain = []                # of a quasi-identifier: public bounds [lowest, highest], never read from the data",
        unit,
    ]


def _seen(what: str | None, options: ReadOptions) -> list[str]:
    """Say in comments what cells look like that may be numbers and are not read so, and what to do about it."""
    if what not in _REMEDIES:
        return []
    remedy = _REMEDIES[what]
    if what == "comma" and options.delimiter == ",":
        remedy = 'save the file with semicolons, write delimiter = ";" and decimal = "," into [read], then'
    return [f"# {SEEN[what]}:", f"# {remedy}:"]


_REMEDIES = {
    "comma": '[read] decimal = "," reads them. One mark holds for the whole file: write others so too, then',
    "point": "[read] names one mark for the whole file. Write these so too, then",
    "thousands": "take the marks between thousands out of the file, then",
    "words": "mend those, or name words such as n/a in [read] null, then",
    "nothing": "if values will be numbers",
}


# --- trips --------------------------------------------------------------------------------------------------------


def _draft_trips(dataset: str, kinds: Mapping[str, str], options: ReadOptions, seen: Mapping[str, str]) -> str:
    ends = {"origin": _end(kinds, "from"), "destination": _end(kinds, "to")}
    moment = _first(kinds, lambda name, kind: kind == "time")
    person = _first(kinds, lambda name, kind: _means(name, "person") and name not in ends.values())
    head = _head(dataset, "trip", 'or "rider": then fill in [contribution] below too', "trips")
    trip = [_named(key, column, "a column") for key, column in {**ends, "time": moment}.items()]
    tables = [_trip_table(name, ends, moment, seen.get(name) == "offset") for name in kinds]
    tables += [_STOPS, _COUNTS, _CONTRIBUTION.format(person=_text(person or "card"))]
    count = '# count = "trips"          # if a row stands for several trips\n'
    return "\n".join([head, "[trip]", *trip, count, *tables, _read(options, seen)])


_STOPS = """[city]
stops = ""                 # a CSV file with a column stop: all stops there are, from the timetable and not from the
                           # trips, and written as in these (codes or names); with zone, lat, lon and hub too if a
                           # fleet is to be sized, and no other column
# modes = "modes.csv"      # origin,destination,mode for every pair; the features O5 need it
"""
_COUNTS = """[mechanism]                # dunnage advise fills this in: leave it as it is, or choose yourself
name = "constrained-counts"
epsilon = ""               # what one trip (or rider) loses at most; no default, it is your promise
features = "O3"            # O3 needs stops alone, O4 zones too, O5 zones and modes
"""
_CONTRIBUTION = """# [contribution]           # with protects = "rider": whose trips, and how many of each are counted
# person = {person}
# max = 2
# per = "period"
"""


def _trip_table(name: str, ends: Mapping[str, str | None], moment: str | None, offset: bool) -> str:
    lines = [f"[attributes.{_key(name)}]"]
    if name in ends.values():
        lines += ['role = "quasi-identifier"  # as every column of a trip', 'kind = "stop"']
    elif name == moment:
        lines += ['role = "quasi-identifier"  # as every column of a trip', 'kind = "time"']
        lines += ['domain = []                # the service day: ["04:00", "28:00"], say', "window_minutes = 60"]
        lines.append('zone = ""                  # whose clock is meant: times state their difference from UTC')
        if not offset:
            lines[-1] = '# zone = "Europe/Zurich"   # whose clock is meant; needed where times end in Z or +02:00'
        lines += ['# day = "day-type"         # tells weekdays, Saturdays and Sundays apart']
        lines += ['outside = "leave-out"      # trips at other times are left out, not refused']
    else:
        lines.append('role = ""                  # identifier (whose trip it is) or drop: counts carry no other column')
    return "\n".join(lines) + "\n"


# --- devices ------------------------------------------------------------------------------------------------------


def _draft_devices(dataset: str, kinds: Mapping[str, str], options: ReadOptions, seen: Mapping[str, str]) -> str:
    place = _place(kinds)
    moment = _first(kinds, lambda name, kind: kind == "time")
    vehicle = _first(kinds, lambda name, kind: _means(name, "vehicle"))
    others = {name: kind for name, kind in kinds.items() if name not in (place or ())}
    tables = [_device_table(name, kind, moment, vehicle, seen.get(name)) for name, kind in others.items()]
    if place:
        tables.append(_GRID.format(columns=", ".join(map(_text, place))))
    purposes = [_PURPOSE.format(name="numbers", subject="numeric")] if "numeric" in others.values() else []
    purposes += [_PLACES + _PURPOSE.format(name="places", subject="location")] if place else []
    if len(purposes) > 1:
        purposes.insert(0, _SEVERAL)
    if options != ReadOptions():
        tables.insert(
            0, "# Readings must be a CSV file with commas, decimal points and UTF-8, or Parquet: save this one so.\n"
        )
    head = _head(dataset, "vehicle", "what one device stands for", "devices")
    schedule = _SCHEDULE.format(time=_named("time", moment, "the column of the moment"))
    # Which columns are meant, where they are not called as a simulation expects; odd names are the owner's.
    expected = {
        "vehicle-column": (vehicle or "NAME", "vehicle"),
        "time-column": (moment or "NAME", "time"),
        "place-columns": (",".join(place or ("lon", "lat")), "lon,lat"),
    }
    columns = "".join(
        f" --{option} {name if re.fullmatch(r'[A-Za-z0-9_.,-]+', name) else 'NAME'}"
        for option, (name, usual) in expected.items()
        if name != usual
    )
    trial = _TRIAL.format(columns=columns)
    return "\n".join([head, *tables, schedule, *purposes, trial])


_TRIAL = """# To try it out on a file of many vehicles:
#   dunnage device task frontier/policy.toml -o task.json
#   dunnage device simulate DATA --task task.json{columns} -o reports.jsonl
"""


_GRID = """[attributes.place]
role = "quasi-identifier"  # reported as the cell of a public grid
kind = "grid"
box = []                   # west, south, east, north in degrees: the region you serve, from a map, not from the data
levels = 4                 # 2^(levels - 1) = 8 columns and as many rows; fewer cells, surer shares
columns = [{columns}]
"""
_SCHEDULE = """[schedule]
{time}
slots_per_day = 1          # reports of each kind a day, at moments drawn before the day begins
slot_minutes = 60          # how far moments are apart, and how old a reading may be

[allowance]
lifetime = ""              # what all reports of one vehicle may give away together: 30 days of epsilon 1 make 30
"""
_SEVERAL = """# Two kinds of reports, numbers and places. Keep only those you need: each has an epsilon of its
# own, and what they give away adds up. Without numbers: drop their columns, and delete [mechanisms.numbers].
"""
_PLACES = """# A map takes some thousand vehicles. With fewer it is noise, and dunnage estimate refuses it without
# --allow-noise: write fewer levels above, or delete [attributes.place] and [mechanisms.places]. Before you collect,
#   dunnage show task.json --devices N
# says how far shares would be off with N vehicles, and whether that is noise.
"""
_PURPOSE = """[mechanisms.{name}]
name = "local-{subject}"
epsilon = ""               # what one report gives away at most; no default, it is your promise
"""


def _device_table(name: str, kind: str, moment: str | None, vehicle: str | None, seen: str | None) -> str:
    lines = [f"[attributes.{_key(name)}]"]
    if name == vehicle:
        lines.append('role = "identifier"        # of exactly one column: no report names it')
    elif name == moment:
        lines.append('role = "drop"              # it only says which reading a slot reports')
    elif kind == "numeric":
        lines.append('role = ""                  # quasi-identifier if it is to be reported, else drop')
        lines += _bounds(name)
    elif seen in _REMEDIES and seen != "nothing":
        lines.append(f'role = "drop"              # {SEEN[seen]}:')
        lines.append("# to report them, write all of them as numbers with a point, and draft again")
    elif vehicle is not None:
        lines.append('role = "drop"              # devices report numbers and places only')
    else:
        lines.append('role = ""                  # identifier, if it names the vehicle; else drop')
    return "\n".join(lines) + "\n"


# --- parts --------------------------------------------------------------------------------------------------------


_NEXT = {
    "rows": "dunnage advise DATA --policy THIS.toml --goal trucks --capacity 500kg -o frontier",
    "trips": "dunnage advise DATA --policy THIS.toml --goal error -o frontier",
    "devices": "dunnage advise DATA --policy THIS.toml --goal error -o frontier",
}
_STORY_WORDS = {
    "rows": "each row is a record of its own",
    "trips": "rows are trips, and what is published are counts of them",
    "devices": "rows are readings of devices, which perturb them before anything leaves",
}


_RULES = """# Rows that lack a value or lie outside a domain are refused. In a column's table, missing = "leave-out" and
# outside = "leave-out" leave them out; outside = "clamp" moves numbers to the bound.
"""


def _head(dataset: str, protects: str, says: str, story: str) -> str:
    others = " or ".join(f"--story {other}" for other in STORIES if other != story)
    return f"""# Fill in what is "" or []; dunnage show THIS.toml lists what is still blank. Then
#   {_NEXT[story]}
# The draft takes it that {_STORY_WORDS[story]};
# dunnage draft with {others} writes another one.
{"" if story == "devices" else _RULES}# docs/tutorials/your-own-file.md goes through it column by column.
# Roles: {_ROLES}
dataset = {_text(dataset)}
{_line(f'protects = "{protects}"')}# {says}
"""


def _read(options: ReadOptions, seen: Mapping[str, str]) -> str:
    unusual = [
        f"{name} = {_text(getattr(options, name))}"
        for name in ("delimiter", "decimal", "encoding", "sheet")
        if getattr(options, name) != getattr(ReadOptions(), name)
    ]
    if "comma" in seen.values() and options.delimiter != ",":
        unusual.append(_line('# decimal = ","') + f"# {SEEN['comma']}")
    return "\n".join(["[read]", *unusual, ""]) if unusual else ""


def _named(key: str, column: str | None, says: str) -> str:
    return f"{key} = {_text(column)}" if column is not None else _line(f'{key} = ""') + f"# {says}"


def _line(text: str) -> str:
    return f"{text:26} "


def _words(name: str) -> list[str]:
    """Cut a column's name into words: at marks, and where a capital follows a small letter."""
    words = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).casefold())
    return words + [end for word in words for end in _COMPOUND_ENDS if word.endswith(end)]


def _means(name: str, meaning: str) -> bool:
    return not _WORDS[meaning].isdisjoint(_words(name))


def _first(kinds: Mapping[str, str], fits: Callable[[str, str], bool]) -> str | None:
    return next((name for name, kind in kinds.items() if fits(name, kind)), None)


def _end(kinds: Mapping[str, str], meaning: str) -> str | None:
    """Return the column of stops at one end of a trip: a name that says so, and no moment or person."""
    return _first(kinds, lambda name, kind: kind in ("text", "numeric") and _means(name, meaning))


def _place(kinds: Mapping[str, str]) -> tuple[str, str] | None:
    columns = [
        _first(kinds, lambda name, kind, side=side: kind == "numeric" and _means(name, side))  # type: ignore[misc]
        for side in ("longitude", "latitude")
    ]
    return (columns[0], columns[1]) if columns[0] is not None and columns[1] is not None else None


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but for pairs of surrogates and for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
