# SPDX-License-Identifier: Apache-2.0
"""What the site needs beyond its pages: no address outside of it, and links out of the documents as words."""

from __future__ import annotations

import re
from typing import Any

import dunnage

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:[A-Z]\w*\.md|src/[^)]*|tests/[^)]*)\)")
_SHIM = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"></script>')


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Turn links to files of the repository that are not pages into words, and list the public names in the reference.

    On the forge such links work.
    """
    if page.file.src_uri == "reference.md":
        markdown += "".join(
            f"\n## {title}\n\n" + "".join(f"::: dunnage.{name}\n\n" for names in modules.values() for name in names)
            for title, modules in dunnage.PUBLIC.items()
        )
    return _OUTSIDE.sub(r"\1", markdown)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Let search from the disk use a script of the site's own, where the theme would fetch one."""
    above = "../" * page.url.count("/")
    return _SHIM.sub(f'<script src="{above}site_worker.js"></script>', output)


def on_post_template(output_content: str, **_: Any) -> str:
    """Do the same on the page for addresses that lead nowhere."""
    return _SHIM.sub('<script src="site_worker.js"></script>', output_content)
