# SPDX-License-Identifier: Apache-2.0
"""How every page is made: one document with its style inside, closed to the network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from dunnage.svg import Svg


def render(template: str, content: Mapping[str, Any]) -> str:
    """Fill in a template; whatever is not markup already is escaped.

    Parameters
    ----------
    template
        Its file name. It may use ``css`` and ``style_hash`` besides the content.
    content
        What it says.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dunnage", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = Svg(resources.files("dunnage").joinpath("templates", "page.css").read_text("utf-8"))
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return environment.get_template(template).render(css=css, style_hash=Svg(digest), **content)
