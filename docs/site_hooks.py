# SPDX-License-Identifier: Apache-2.0
"""What the site needs beyond its pages: no address outside of it, and links out of the documents as words."""

from __future__ import annotations

import inspect
import re
from typing import Any

import dunnage

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:[A-Z]\w*\.md|src/[^)]*|tests/[^)]*)\)")
_FIELD = re.compile(r"    (\w+): [^#]*?(?:  # (.*))?")
_SHIM = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"></script>')


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Turn links to files of the repository that are not pages into words, and list the public names in the reference.

    On the forge such links work.
    """
    if page.file.src_uri == "reference.md":
        for title, modules in dunnage.PUBLIC.items():
            names = [name for names in modules.values() for name in names]
            markdown += f"\n## {title}\n\n" + "".join(f"::: dunnage.{name}\n\n{fields_of(name)}" for name in names)
    return _OUTSIDE.sub(r"\1", markdown)


def fields_of(name: str) -> str:
    """List the fields of a public class that comments explain, beside or above them, unless its docstring does."""
    thing, listed, above = getattr(dunnage, name), [], ""
    commented = inspect.isclass(thing) and "Parameters\n" not in (thing.__doc__ or "")
    for line in inspect.getsource(thing).splitlines() if commented else ():
        if line.startswith(("    def ", "    @")):
            break
        if line.startswith("    # "):
            above += line[5:]
        elif field := _FIELD.fullmatch(line):
            text, above = (field[2] or above).strip(), ""
            several = re.match(rf"({field[1]}(?:, \w+)+): ", text)  # one comment for several fields
            names = several[1].split(", ") if several else [field[1]]
            text = text[several.end() :] if several else text
            listed += [f"- {', '.join(f'`{one}`' for one in names)}: {text}\n"] if text else []
    return "".join(listed) + "\n" * bool(listed)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Let search from the disk use a script of the site's own, where the theme would fetch one."""
    above = "../" * page.url.count("/")
    return _SHIM.sub(f'<script src="{above}site_worker.js"></script>', output)


def on_post_template(output_content: str, **_: Any) -> str:
    """Do the same on the page for addresses that lead nowhere."""
    return _SHIM.sub('<script src="site_worker.js"></script>', output_content)
