# SPDX-License-Identifier: Apache-2.0
"""Numbers, shares and plurals for a person: one way to write each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction

from dunnage.exact import bounded_text, exact

Progress = Callable[[str], None]  # called with a line of text as each stage begins
NO_BREAK = "\N{NO-BREAK SPACE}"
_MANY_DIGITS = 6
_ROUNDING = 1e-9  # a share this close to the whole counts as the whole

# How many of a unit of time an hour has
HOURS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 3600.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 1.0),
}


def number_text(value: float) -> str:
    """Write a number with four digits and commas between thousands, without an exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(decimals, 9)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def one_line(text: str) -> str:
    """Write line breaks and control characters as escapes: words of others must not look like lines of ours."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def several(num: int, noun: str) -> str:
    """Write a count with its noun: ``1 trip``, ``1,000 trips``."""
    return f"{num:,} {noun if num == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Write a noun, such as what a policy protects, for several: ``trips``, ``boxes``, ``deliveries``."""
    if re.search(r"[^aeiou]y$", noun):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if re.search(r"(s|x|z|ch|sh)$", noun) else f"{noun}s"


def time_text(moment: str) -> str:
    """Write a moment of a document (ISO 8601) for a person, in UTC to the minute; any other text as it is."""
    try:
        return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return moment


def for_unit(sentence: str, unit: str) -> str:
    """Name what a policy protects in a sentence about packages: ``a package`` becomes ``an order``."""
    if unit == "package" or not unit.strip():
        return sentence
    article = "an" if unit[0].lower() in "aeiou" else "a"
    words = {"a package": f"{article} {unit}", "packages": plural(unit), "package": unit}
    return re.sub(r"\b(?:a package|packages|package)\b", lambda match: words[match[0]], sentence)


def rounded_percent(share: float) -> str:
    """Write a share in per cent with three digits, even if that rounds to 100 %."""
    return f"{100 * share:.3g} %"


def percent(share: float) -> str:
    """Write a share in per cent; only the whole is written as 100 %, only nothing as 0 %."""
    return "over 99.9 %" if 0.9995 <= share < 1 else rounded_percent(share)


def percent_at_most(share: Fraction | float, digits: int = 3) -> str:
    """Write an upper bound on a share in per cent, rounded up: what is printed is never below the bound."""
    texts = (bounded_text(100 * exact(share), up=True, digits=num) for num in (digits, _MANY_DIGITS))
    return f"{next((text for text in texts if text != '100'), '100')} %"  # a little less than certain: more digits


def percent_at_least(share: Fraction | float, digits: int = 3) -> str:
    """Write a lower bound on a share in per cent, rounded down: what is printed is never above the bound."""
    return f"{bounded_text(100 * exact(share), up=False, digits=digits)} %"


def percent_change(change: float) -> str:
    """Write a relative change with its sign: ``+12.5 %``."""
    return f"{100 * change:+.1f} %"


def large_percent(share: float) -> str:
    """Write a share that may exceed the whole: like :func:`percent`, but in whole per cent from ten times upwards."""
    return f"{100 * share:,.0f} %" if share >= 9.995 else percent(share)


def share_text(share: float) -> str:
    """Write a share like :func:`percent`, without an exponent and without a line break."""
    nearly = 0.9995 <= share < 1 - _ROUNDING
    text = "over 99.9 %" if nearly else f"{number_text(float(f'{100 * share:.3g}'))} %"
    return text.replace(" ", NO_BREAK)


def unbroken(page: str) -> str:
    """Keep numbers and their per cent signs on one line of a page. Styles and scripts have no such place."""
    return page.replace(" %", f"{NO_BREAK}%")
