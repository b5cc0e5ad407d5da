# SPDX-License-Identifier: Apache-2.0
"""Draft policies from the names and types of columns alone, for the owner to fill in.

Comments say what a name usually means, but the owner decides: roles, bounds, k and epsilon stay blank.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dunnage.errors import ParameterError
from dunnage.exact import shown
from dunnage.model.documents import suggestion
from dunnage.model.periods import LABEL, LENGTHS
from dunnage.model.policy import Written, is_for_devices
from dunnage.model.schema import RESERVED_NAMES
from dunnage.tables.reader import ReadOptions

STORIES = ("rows", "trips", "devices")
"""What the rows of a file stand for: records, trips to count, or readings of devices."""

# The parts of a draft, by the names of their sections.
_TEXTS: dict[str, str] = dict(
    re.findall(
        r"^=== (\w+)\n(.*?)(?=^=== |\Z)", Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"), re.M | re.S
    )
)
_TABLES: dict[str, dict[str, str]] = tomllib.loads(_TEXTS["tables"])
_WORDS = {meaning: frozenset(words.split()) for meaning, words in _TABLES["words"].items()}
_COMPOUND_ENDS = ("nr", "nummer", "number", "gewicht", "datum", "name")
SEEN: Mapping[str, str] = _TABLES["seen"]


def draft_policy(
    dataset: str,  # Name in the ledger
    kinds: Mapping[str, str],
    *,
    options: ReadOptions | None = None,  # The format of the CSV file, if it is unusual
    story: str | None = None,  # `rows`, `trips` or `devices`; by default guessed from the names of the columns
    seen: Mapping[str, str] | None = None,
) -> str:
    if story is not None and story not in STORIES:
        raise ParameterError(f"unknown story {shown(story)}. {suggestion(str(story), STORIES)}")
    write = {"rows": _draft_rows, "trips": _draft_trips, "devices": _draft_devices}[story or likely_story(kinds)]
    return write(dataset, kinds, options or ReadOptions(), seen or {})


def likely_story(kinds: Mapping[str, str]) -> str:
    moment = _first(kinds, lambda name, kind: kind == "time")
    if moment is None and _first(kinds, lambda name, kind: kind == "date") is None:
        return "rows"
    weighed = any(_means(name, "amount") for name in kinds)
    if not weighed and ((_end(kinds, "from") and _end(kinds, "to")) or _boards(kinds)):
        return "trips"
    if moment is None:
        return "rows"
    goods = weighed or any(_means(name, "thing") for name in kinds)
    # Readings are about something that moves or measures, not about goods.
    numbers = [name for name, kind in kinds.items() if kind == "numeric"]
    place, measured = _place(kinds) is not None, any(_means(name, "measured") for name in numbers)
    unnamed = any(not any(_means(name, meaning) for meaning in _WORDS) for name in numbers)
    if any(_means(name, "vehicle") for name in kinds):
        return "devices" if place or measured or (unnamed and not goods) else "rows"
    return "devices" if place and (measured or not goods) else "rows"


def likely_persons(kinds: Mapping[str, str]) -> list[str]:
    """Return the columns that name persons, by their own names; the ends of a trip do not."""
    ends = _trip_ends(kinds) if likely_story(kinds) == "trips" else ()
    about = ("code", "place", "free", "amount", "time", "money")  # customer_zip is not the customer
    return [
        name
        for name in kinds
        if _means(name, "person") and name not in ends and not any(_means(name, other) for other in about)
    ]


# --- rows ---------------------------------------------------------------------------------------------------------


def _draft_rows(dataset: str, kinds: Mapping[str, str], options: ReadOptions, seen: Mapping[str, str]) -> str:
    rides = likely_story(kinds) == "trips" and not _boards(kinds)
    ends = (_end(kinds, "from"), _end(kinds, "to")) if rides else ()
    tables = [
        _row_table(name, kind, _seen(seen.get(name), options), "station" if name in ends else "moment" if rides else "")
        for name, kind in kinds.items()
    ]
    says = 'what one row stands for: "package", "ride", "order" ...'
    head = _head(dataset, "ride" if rides else "record", says, "rows", "rides" if rides else "rows")
    persons = likely_persons(kinds)
    if persons:
        tables.append(_TEXTS["persons"].format(person=_text(persons[0])))
    name = "partition" if "numeric" in kinds.values() and not rides else "utility-clusters"
    kept = '# small = "suppress"       # leave out rows that share their public values with fewer than k - 1 others\n'
    return "\n".join(
        [
            head + kept,
            *tables,
            _TEXTS["mechanism"].format(name=_line(f'name = "{name}"')),
            *([] if rides else [_TEXTS["loading"]]),
            _period(kinds, _first(kinds, lambda name, kind: kind in ("time", "date"))),
            _read(options, seen),
        ]
    )


def role_hint(name: str, kind: str, of_ride: str = "") -> str:
    """Say which role a column usually has, by its name and what its cells look like; the first word is the role."""
    hints = (hint for meaning, hint in _TABLES["hints"].items() if _means(name, meaning))
    hint = _TABLES["hints"]["time"] if kind in ("time", "date") else next(hints, _TABLES["general"][kind])
    if of_ride == "station" or (of_ride and kind == "time"):
        hint = _TABLES["rides"][of_ride]
    if name in RESERVED_NAMES:
        hint = "drop, or rename the column in data and policy, because releases use this name"
    return hint


def is_code(name: str, kind: str) -> bool:
    """Return whether a column has postcodes or the like, which can be shortened to their first characters."""
    return _means(name, "code") and kind in ("numeric", "text")


def unit_of(name: str) -> str:
    """Return the unit that the name of a column states; empty if it states none."""
    signs = [unit for sign, unit in _TABLES["signs"].items() if re.search(rf"(?<!\w){sign}(?!\w)", name.casefold())]
    return next(iter(signs or [_TABLES["units"][word] for word in _words(name) if word in _TABLES["units"]]), "")


def _row_table(name: str, kind: str, remarks: list[str], of_ride: str = "") -> str:
    hint = role_hint(name, kind, of_ride)
    lines = [f"[attributes.{_key(name)}]", f'role = ""                  # {hint}', *remarks]
    if is_code(name, kind):
        more = _TEXTS["row_prefix"]
    elif remarks and kind != "numeric":
        lines, more = lines + [f"# {line.removeprefix('# ')}" for line in _bounds(name)], ""
    elif of_ride == "station":
        more = _TEXTS["row_station"]
    else:
        lines += _bounds(name) if kind == "numeric" else []
        more = _TEXTS[f"row_{'text' if kind == 'flag' else kind}"]
    return "\n".join([*lines, more])


def _bounds(name: str) -> list[str]:
    unit, last = '# unit = "kg"', (re.findall(r"[^\W_]+", name.casefold()) or [""])[-1]
    if named := unit_of(name):
        unit = _line(f'unit = "{named}"') + "# from the name of the column"
    elif last in _TABLES["likely_units"]:
        unit = _line(f'# unit = "{_TABLES["likely_units"][last]}"') + "# if that is what the name means"
    return [
        'kind = "numeric"',
        "domain = []                # of a quasi-identifier: public bounds [lowest, highest], never read from the data",
        unit,
    ]


def _seen(what: str | None, options: ReadOptions) -> list[str]:
    """Write comments about cells that look like numbers but are not read as numbers, and what to do about them."""
    if what not in _TABLES["remedies"]:
        return []
    remedy = _TABLES["remedies"][what]
    if what == "comma" and options.delimiter == ",":
        remedy = 'save the file with semicolons, write delimiter = ";" and decimal = "," into [read], then'
    return [f"# {SEEN[what]}:", f"# {remedy}:"]


# --- trips --------------------------------------------------------------------------------------------------------


def _draft_trips(dataset: str, kinds: Mapping[str, str], options: ReadOptions, seen: Mapping[str, str]) -> str:
    boards = _boards(kinds)
    ends = dict(zip(("origin", "destination"), _trip_ends(kinds), strict=True))
    moment = _first(kinds, lambda name, kind: kind == "time") or _first(kinds, lambda name, kind: kind == "date")
    person = next(iter(likely_persons(kinds)), None)
    head = _head(dataset, "trip", 'or "rider": then fill in [contribution] below too', "trips")
    says = {"destination": "a column; delete this line if it is not known, to count boardings"}
    trip = [_named(key, column, says.get(key, "a column")) for key, column in {**ends, "time": moment}.items()]
    counted = _first(kinds, lambda name, kind: kind == "numeric" and _means(name, "boarded")) if boards else None
    if boards:
        trip[1] = _line('# destination = ""') + "# not known: counts are of boardings, by stop and window"
    of_rows = _TEXTS["trip"]
    if counted:
        of_rows = re.sub(r"# count = .*", f"count = {_text(counted)}", of_rows)
    tables = []
    for name, kind in kinds.items():
        text = _TEXTS["trip_end" if name in ends.values() else "trip_other"]
        if name == moment and name not in ends.values():
            zone = '# zone = "Europe/Zurich"   # the time zone; needed if times end in Z or +02:00'
            if seen.get(name) == "offset":
                zone = 'zone = ""                  # the time zone: times state their difference from UTC'
            text = _TEXTS["trip_time"].format(zone=zone) + (_TEXTS["trip_date"] if kind == "date" else "")
        elif name == counted:
            text = _TEXTS["trip_count"]
        tables.append(f"[attributes.{_key(name)}]\n{text}")
    tables += [_TEXTS["stops"], _TEXTS["expect"].format(), _TEXTS["boardings" if boards else "counts"]]
    tables.append(_TEXTS["contribution"].format(person=_text(person or "card")))
    return "\n".join([head, "[trip]", *trip, of_rows, *tables, _period({}, moment), _read(options, seen)])


# --- devices ------------------------------------------------------------------------------------------------------


def _draft_devices(dataset: str, kinds: Mapping[str, str], options: ReadOptions, seen: Mapping[str, str]) -> str:
    place = _place(kinds)
    moment = _first(kinds, lambda name, kind: kind == "time")
    vehicle = _first(kinds, lambda name, kind: _means(name, "vehicle"))
    others = {name: kind for name, kind in kinds.items() if name not in (place or ())}
    tables = [_device_table(name, kind, moment, vehicle, seen.get(name)) for name, kind in others.items()]
    if vehicle is None and all(kind in ("numeric", "time", "date") for kind in others.values()):
        tables.insert(0, _TEXTS["vehicle_by_file"])
    if place:
        tables.append(_TEXTS["grid"].format(columns=", ".join(map(_text, place))))
    purposes = [_TEXTS["purpose"].format(name="numbers", subject="numeric")] if "numeric" in others.values() else []
    purposes += [_TEXTS["places"] + _TEXTS["purpose"].format(name="places", subject="location")] if place else []
    if len(purposes) > 1:
        purposes.insert(0, _TEXTS["several"])
    if options.encoding != ReadOptions().encoding or options.delimiter == "|":
        tables.insert(0, "# Save readings as Parquet, or as CSV in UTF-8 with commas or semicolons between cells.\n")
    head = _head(dataset, "vehicle", "what one device stands for", "devices")
    schedule = _TEXTS["schedule"].format(time=_named("time", moment, "the column with the time"))
    return "\n".join([head, *tables, schedule, *purposes, _TEXTS["trial"]])


def _device_table(name: str, kind: str, moment: str | None, vehicle: str | None, seen: str | None) -> str:
    lines = [f"[attributes.{_key(name)}]"]
    if name == vehicle:
        lines.append('role = "identifier"        # exactly one column has this role; no report names it')
    elif name == moment:
        lines.append('role = "drop"              # it only decides which reading a slot reports')
    elif kind == "numeric":
        lines.append('role = ""                  # quasi-identifier if devices report it, else drop')
        lines += _bounds(name)
    elif seen in _TABLES["remedies"] and seen != "nothing":
        lines.append(f'role = "drop"              # {SEEN[seen]}:')
        lines.append("# to report them, write all of them as numbers with a decimal point, and draft again")
    elif vehicle is not None:
        lines.append('role = "drop"              # devices report numbers and places only')
    else:
        lines.append('role = ""                  # identifier, if it names the vehicle; else drop')
    return "\n".join(lines) + "\n"


# --- like an earlier policy ----------------------------------------------------------------------------------------


class LikeDraft(NamedTuple):
    text: str
    remarks: tuple[str, ...]  # what differs from the earlier policy, or has to be checked
    ready: bool  # whether rows can be published as before: no difference left a blank


_FILE_KEYS = {"stops", "modes", "hierarchy", "edges"}
_LIKE = re.compile(r"\A(# Made from .*\n(#   .*\n)*\n?)")


def declared_columns(document: Mapping[str, Any]) -> list[str]:
    """Return the columns that a policy reads; a grid names the columns of its coordinates."""
    attributes = document.get("attributes")
    names: list[str] = []
    for name, table in (attributes if isinstance(attributes, Mapping) else {}).items():
        is_grid = isinstance(table, Mapping) and table.get("kind") == "grid"
        names += [str(column) for column in table.get("columns", ())] if is_grid else [name]
    return names


def policy_like(
    written: Written,
    kinds: Mapping[str, str],
    seen: Mapping[str, str],
    *,
    source: str,  # Name of the new file
    read: ReadOptions | None,  # Its format, if it differs from last time's
    folder: Path | None,  # Where the draft will be; by default beside the earlier policy
) -> LikeDraft:
    """Repeat an earlier policy for a file that has its columns, and say what differs."""
    document, for_devices = written.document, is_for_devices(written.document)
    text, remarks, name = _LIKE.sub("", written.text), [], written.path.name if written.path else "policy"
    declared = declared_columns(document)
    added = [column for column in kinds if column not in declared]
    remarks += [f"column {column!r} is new: fill in its role" for column in added]
    stated = document.get("attributes")
    tables = {name: table for name, table in stated.items() if isinstance(table, Mapping)} if stated else {}
    for column in declared:
        table, looks = tables.get(column, {}), kinds[column]
        kind = table.get("kind")
        if (kind == "numeric" and looks != "numeric") or (kind == "time" and looks not in ("time", "date")):
            what = SEEN.get(seen.get(column, ""), f"its cells look like {_TABLES['looks'][looks]}")
            remarks.append(f"column {column!r} is declared as {kind}, but {what}")
        if table.get("dates") or table.get("holidays"):
            remarks.append(f"dates and holidays of column {column!r} are those of last time: check them")
    if read is not None:
        text = re.sub(r"(?m)^\[read\][^\n]*\n(?:(?!\s*\[)[^\n]*\n?)*", "", text)
        remarks.append("the file is written in another format: [read] says which")
    more = [_row_table(column, kinds[column], _seen(seen.get(column), read or ReadOptions())) for column in added]
    more += [_read(read, {})] if read is not None else []
    if not for_devices and "period" not in document:
        length, moment = _likely_length(document)
        column = _line(f"column = {_text(moment)}") + "# trips on the dates of other periods are not counted"
        if length == LABEL or seen.get(moment) == "clock":
            column = (
                _line('# column = "date"') + "# the column with the date or label; without it, a file is one period"
            )
        more.append(_TEXTS["next"].format(length=_line(f'length = "{length}"'), like=LENGTHS[length], column=column))
        added_rule = f"one was added, of one {length}, such as --period {LENGTHS[length]}"
        remarks.append(f"{name} has no [period], so the ledger would refuse a second file: {added_rule}")
    elif not for_devices:
        remarks.append(f"{name} has a [period], so you can also use it as it is, with the next --period")
    if folder is not None and written.path is not None:  # files are relative to the policy
        city = document.get("city")
        for table in (city if isinstance(city, Mapping) else {}, *tables.values()):
            for key in _FILE_KEYS & table.keys():
                place = _text(os.path.relpath(written.path.parent / str(table[key]), folder)).replace("\\", r"\\")
                text = re.sub(rf"(?m)^(\s*{key}\s*=\s*)([\"']){re.escape(str(table[key]))}\2", rf"\g<1>{place}", text)
    head = "".join(f"#   {remark}\n" for remark in remarks)
    text = "\n".join([f"# Made from {name} for {source}.\n{head}\n{text.rstrip()}\n", *more])
    again = Written.from_text(text, written.path).document
    if declared_columns(again) != [*declared, *added]:
        raise ParameterError(
            f"{name} cannot be extended, because of how it is written. Copy it, and declare the columns."
        )
    same = () if added else ("the columns are the same",)
    return LikeDraft(text, (*same, *remarks), ready=not added and not for_devices)


def _likely_length(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return what one release of a policy without [period] covers, by the number of dates it states, and the time."""
    trip, expect = (table if isinstance(table := document.get(key), Mapping) else {} for key in ("trip", "expect"))
    days = expect.get("days")
    num = sum(days.values()) if isinstance(days, Mapping) else expect.get("dates")
    dates = num if trip and isinstance(num, int) else 0
    lengths = {"day": range(1, 2), "week": range(2, 8), "month": range(20, 32)}  # a month has 20 working days
    return next((length for length, nums in lengths.items() if dates in nums), LABEL), str(trip.get("time"))


def _head(dataset: str, protects: str, says: str, story: str, command: str = "") -> str:
    others = " or ".join(f"--story {other}" for other in STORIES if other != story)
    return _TEXTS["head"].format(
        command=_TABLES["next"][command or story],
        story=_TABLES["story"][story],
        others=others,
        rules="" if story == "devices" else _TEXTS["rules"],
        dataset=_text(dataset),
        protects=_line(f'protects = "{protects}"'),
        says=says,
    )


def _period(kinds: Mapping[str, str], column: str | None) -> str:
    lines = [_TEXTS["period"]]
    if column is not None:
        lines.append(_line(f"# column = {_text(column)}") + "# without it, a file is one period\n")
        if kinds.get(column) == "date":
            lines.append('# format = "day.month.year" # or "month/day/year" ...: how these dates are written\n')
    return "".join(lines)


def _read(options: ReadOptions, seen: Mapping[str, str]) -> str:
    unusual = [
        f"{name} = {_text(getattr(options, name))}"
        for name in ("delimiter", "decimal", "encoding", "sheet")
        if getattr(options, name) != getattr(ReadOptions(), name)
    ]
    if options.null is not None:
        unusual.append(f"null = [{', '.join(map(_text, options.null))}]")
    if "comma" in seen.values() and options.delimiter != ",":
        unusual.append(_line('# decimal = ","') + f"# {SEEN['comma']}")
    return "\n".join(["[read]", *unusual, ""]) if unusual else ""


def _named(key: str, column: str | None, says: str) -> str:
    return f"{key} = {_text(column)}" if column is not None else _line(f'{key} = ""') + f"# {says}"


def _line(text: str) -> str:
    return f"{text:26} "


def _words(name: str) -> list[str]:
    """Split the name of a column into words: at marks, and before a capital after a small letter."""
    words = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).casefold())
    return words + [end for word in words for end in _COMPOUND_ENDS if word.endswith(end)]


def _means(name: str, meaning: str) -> bool:
    return not _WORDS[meaning].isdisjoint(_words(name))


def _first(kinds: Mapping[str, str], fits: Callable[[str, str], bool]) -> str | None:
    return next((name for name, kind in kinds.items() if fits(name, kind)), None)


def _end(kinds: Mapping[str, str], meaning: str) -> str | None:
    return _first(kinds, lambda name, kind: kind in ("text", "numeric") and _means(name, meaning))


def _boards(kinds: Mapping[str, str]) -> bool:
    """Return whether columns say where somebody boarded, and not where somebody got off."""
    return any(_means(name, "boarded") for name in kinds) and _trip_ends(kinds)[0] is not None and not _end(kinds, "to")


def _trip_ends(kinds: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the columns of origin and destination; without a destination, any stop is the origin."""
    stop = _first(kinds, lambda name, kind: kind in ("text", "numeric") and _means(name, "stop"))
    ends = _end(kinds, "from"), _end(kinds, "to")
    return ends if ends[1] is not None else (stop or ends[0], None)


def _place(kinds: Mapping[str, str]) -> tuple[str, str] | None:
    columns = [
        _first(kinds, lambda name, kind, side=side: kind == "numeric" and _means(name, side))  # type: ignore[misc]
        for side in ("longitude", "latitude")
    ]
    return (columns[0], columns[1]) if columns[0] is not None and columns[1] is not None else None


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(text: str) -> str:
    # JSON escapes text like TOML, except for pairs of surrogates and for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
