# SPDX-License-Identifier: Apache-2.0
"""How every page is made: one HTML file with its style inside, closed to the network.

A page needs no network, and but for a frontier's no script: its Content-Security-Policy names style and script by their
SHA-256 and allows nothing else. Templates own the sentences; figures are SVG.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

from dunnage._version import __version__
from dunnage.showing.figures import Svg
from dunnage.text import NO_BREAK, large_percent, number_text, percent, several, share_text


class Figure(NamedTuple):
    name: str
    value: str
    note: str


def unbroken_percent(share: float) -> str:
    return large_percent(share).replace(" ", NO_BREAK)


def render(template: str, content: Mapping[str, object], *, script: str | None = None) -> str:
    """Fill in a template; whatever is not markup already is escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dunnage.showing", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number_text,
        "percent": percent,
        "share": share_text,
        "several": several,
        "unbroken_percent": unbroken_percent,
    }
    inside = {"version": __version__, "script_hash": ""}
    for name, file in (("style", "page.css"), ("script", script)):
        if file is not None:
            text = resources.files("dunnage.showing").joinpath("templates", file).read_text("utf-8")
            inside[name] = Svg(text)
            inside[f"{name}_hash"] = Svg(base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())
    return environment.get_template(template).render(**inside, **content)
