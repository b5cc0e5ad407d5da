# SPDX-License-Identifier: Apache-2.0
"""How every page is made: one document with its style inside, closed to the network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from dunnage.svg import Svg


def render(template: str, content: Mapping[str, Any], *, script: str | None = None) -> str:
    """Fill in a template; whatever is not markup already is escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dunnage", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = _text("page.css")
    more = {"css": css, "style_hash": _digest(css)}
    if script is not None:
        text = _text(script)
        more |= {"script": text, "script_hash": _digest(text)}
    return environment.get_template(template).render(**more, **content)


def _text(name: str) -> Svg:
    """Return a file beside the templates, to be placed as it is."""
    return Svg(resources.files("dunnage").joinpath("templates", name).read_text("utf-8"))


def _digest(text: str) -> Svg:
    """Return the SHA-256 by which a page names what it allows."""
    return Svg(base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())
