# SPDX-License-Identifier: Apache-2.0
"""How every page is made: one document with its style inside, closed to the network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

from dunnage.svg import Svg


class Figure(NamedTuple):
    name: str
    value: str
    note: str


def render(template: str, content: Mapping[str, object], *, script: str | None = None) -> str:
    """Fill in a template; whatever is not markup already is escaped.

    A page names its style and script by their SHA-256, and allows nothing else.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dunnage", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    inside: dict[str, Svg] = {}
    for name, hash_name, file in (("css", "style_hash", "page.css"), ("script", "script_hash", script)):
        if file is not None:
            text = resources.files("dunnage").joinpath("templates", file).read_text("utf-8")
            inside[name] = Svg(text)
            inside[hash_name] = Svg(base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())
    return environment.get_template(template).render(**inside, **content)
