# SPDX-License-Identifier: Apache-2.0
"""Numbers, shares and plurals for a person: one way to write each."""

from __future__ import annotations

import math

NO_BREAK = "\N{NO-BREAK SPACE}"
_ROUNDING = 1e-9  # a share this close to all of it is all of it


def number_text(value: float) -> str:
    """Write a number for a person: four digits, thousands apart, no exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(decimals, 9)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def several(num: int, noun: str) -> str:
    """Write a number of things, one of which has no ending: ``1 trip``, ``1,000 trips``."""
    return f"{num:,} {noun}{'' if num == 1 else 's'}"


def rounded_percent(share: float) -> str:
    """Write a share in per cent, three digits, even where that rounds to all of it."""
    return f"{100 * share:.3g} %"


def percent(share: float) -> str:
    """Write a share in per cent; only all of it is 100 %, and only nothing is 0 %."""
    return "over 99.9 %" if 0.9995 <= share < 1 else rounded_percent(share)


def large_percent(share: float) -> str:
    """Write a share that may be many times the whole: as :func:`percent`, from ten times on in whole per cent."""
    return f"{100 * share:,.0f} %" if share >= 9.995 else percent(share)


def share_text(share: float) -> str:
    """Write a share in per cent, three digits, without an exponent, never broken into two lines; only all is 100 %."""
    nearly = 0.9995 <= share < 1 - _ROUNDING
    text = "over 99.9 %" if nearly else f"{number_text(float(f'{100 * share:.3g}'))} %"
    return text.replace(" ", NO_BREAK)
